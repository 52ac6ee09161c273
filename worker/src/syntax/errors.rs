//! Syntax errors of one text in one language, in file order.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree, TreeCursor};

use super::{language::SourceLanguage, newer_syntax};

/// Most errors that are collected. A file with more is in another language.
const ERRORS_MAX: usize = 1000;

/// Parser steps, in hundreds: about thirty times what a file of the largest size takes. Counted rather than timed, so
/// that a call gives the same result on every machine.
const STEPS_MAX: u32 = 400_000;

/// Longest line excerpt, in characters.
const LINE_CHARS_MAX: usize = 160;

/// A place that the grammar does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// First and last row, from 0.
    pub(super) rows: std::ops::RangeInclusive<usize>,
    /// `unexpected text`, or the missing syntax.
    pub(super) message: String,
    /// The first line, trimmed.
    pub(super) line_text: String,
}

/// The parser exceeded its step limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseLimitExceeded;

/// Returns all errors of `text`, except for syntax that is merely newer than the grammar.
pub(super) fn syntax_errors(
    language: SourceLanguage,
    text: &[u8],
) -> Result<Vec<SyntaxError>, ParseLimitExceeded> {
    let found = grammar_errors(language, text)?;
    let Some(older) =
        (if found.is_empty() { None } else { newer_syntax::rewrite_newer_syntax(language, text) })
    else {
        return Ok(found);
    };
    let mut left = grammar_errors(language, &older)?;
    if left.len() >= found.len() {
        return Ok(found);
    }
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    for error in &mut left {
        error.line_text = line_excerpt(&lines, *error.rows.start());
    }
    Ok(left)
}

/// Returns all errors of `text` according to the unmodified grammar.
pub(super) fn grammar_errors(
    language: SourceLanguage,
    text: &[u8],
) -> Result<Vec<SyntaxError>, ParseLimitExceeded> {
    let tree = parse_tree(language, text)?;
    let mut out = Vec::new();
    if tree.root_node().has_error() {
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        collect_errors(tree.walk(), &lines, &mut out);
    }
    Ok(out)
}

/// Parses `text` within the default step limit.
pub(super) fn parse_tree(language: SourceLanguage, text: &[u8]) -> Result<Tree, ParseLimitExceeded> {
    parse_tree_within(language, text, STEPS_MAX)
}

/// Parses `text` within `steps_max` hundreds of steps.
pub(super) fn parse_tree_within(
    language: SourceLanguage,
    text: &[u8],
    steps_max: u32,
) -> Result<Tree, ParseLimitExceeded> {
    let mut parser = Parser::new();
    parser.set_language(&language.grammar()).map_err(|_| ParseLimitExceeded)?;
    let mut steps = 0u32;
    let mut count = |_: &ParseState| {
        steps += 1;
        if steps > steps_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut read = |at: usize, _: tree_sitter::Point| text.get(at..).unwrap_or_default();
    let options = ParseOptions::new().progress_callback(&mut count);
    parser.parse_with_options(&mut read, None, Some(options)).ok_or(ParseLimitExceeded)
}

/// Descends only into nodes with errors, and never into an error itself.
fn collect_errors(mut cursor: TreeCursor<'_>, lines: &[&[u8]], out: &mut Vec<SyntaxError>) {
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            out.push(to_syntax_error(node, lines));
            if out.len() >= ERRORS_MAX {
                return;
            }
        } else if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

fn to_syntax_error(node: Node<'_>, lines: &[&[u8]]) -> SyntaxError {
    let (first, last) = (node.start_position().row, node.end_position().row);
    let what = if node.is_missing() {
        match node.kind() {
            kind if node.is_named() => format!("a missing {}", kind.replace('_', " ")),
            kind => format!("a missing `{kind}`"),
        }
    } else {
        "text that does not fit".to_owned()
    };
    SyntaxError { rows: first..=last.max(first), message: what, line_text: line_excerpt(lines, first) }
}

/// A row's text, trimmed and truncated.
pub(super) fn line_excerpt(lines: &[&[u8]], row: usize) -> String {
    let line = lines.get(row).copied().unwrap_or_default().trim_ascii();
    String::from_utf8_lossy(line).chars().take(LINE_CHARS_MAX).collect()
}
