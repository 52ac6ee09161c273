//! Checks that a parse accounts for every byte of a line as bash would read it. Pure.
//!
//! The grammar differs from bash: it skips characters that bash treats as parts of words, and some tokens contain
//! text that bash expands. Skipped or swallowed text could be a command that no rule sees. So a line is known only if
//! every byte belongs to a token or is a blank to bash, and no token contains text that bash would expand.

use tree_sitter::Node;

/// Parts of a line beyond the commands in its tree.
#[derive(Debug, Default)]
pub(super) struct ParseCoverage {
    /// Lines that bash runs within a token: backquotes in a here-document.
    pub(super) nested_lines: Vec<String>,
    /// Whether some text is not accounted for.
    pub(super) has_gap: bool,
}

/// Checks every token of a tree of `line`. `text` is the line as it was passed to the grammar, byte for byte.
pub(super) fn check_coverage(root: Node<'_>, line: &str) -> ParseCoverage {
    let mut out = ParseCoverage::default();
    out.add_gap(None, line, 0, root.start_byte());
    out.add_gap(None, line, root.end_byte(), line.len());
    let mut cursor = root.walk();
    // End of the previous sibling.
    let mut seen = root.start_byte();
    loop {
        let node = cursor.node();
        out.add_gap(node.parent(), line, seen, node.start_byte());
        out.add_node(node, line);
        if cursor.goto_first_child() {
            seen = node.start_byte();
            continue;
        }
        seen = cursor.node().end_byte();
        while !cursor.goto_next_sibling() {
            let inner = cursor.node().end_byte();
            if !cursor.goto_parent() {
                return out;
            }
            let node = cursor.node();
            out.add_gap(Some(node), line, inner, node.end_byte());
            seen = node.end_byte();
        }
    }
}

impl ParseCoverage {
    /// Checks bytes that belong to no token.
    fn add_gap(&mut self, within: Option<Node<'_>>, line: &str, from: usize, to: usize) {
        let Some(text) = line.get(from..to.max(from)) else {
            self.has_gap = true;
            return;
        };
        // Tokens do not overlap.
        let is_quoted = within.is_some_and(|node| matches!(node.kind(), "string" | "heredoc_body"));
        self.has_gap |= to < from
            || if is_quoted {
                has_active_syntax(text, QuoteContext::Quoted)
            } else {
                !is_blank(line, from, text)
            };
    }

    fn add_node(&mut self, node: Node<'_>, line: &str) {
        let text = line.get(node.byte_range()).unwrap_or_default();
        let is_leaf = node.child_count() == 0;
        self.has_gap |= match node.kind() {
            "heredoc_redirect" => !is_plain_heredoc(node, line),
            "heredoc_body" if is_heredoc_expanded(node, line) => match backquoted_lines(text) {
                Some(lines) => {
                    self.nested_lines.extend(lines);
                    is_leaf && has_active_syntax(&strip_backquoted(text), QuoteContext::Quoted)
                }
                None => true,
            },
            "heredoc_content" => {
                let body = node.parent();
                body.is_some_and(|body| is_heredoc_expanded(body, line))
                    && has_active_syntax(&strip_backquoted(text), QuoteContext::Quoted)
            }
            // Bash removes a level of backslashes before it reads the inner line.
            "command_substitution" if text.starts_with('`') && text.contains('\\') => {
                self.nested_lines.extend(backquoted_lines(text).unwrap_or_default());
                false
            }
            "comment" => !can_start_comment(line, node.start_byte()) || text.contains('\n'),
            "string_content" => has_active_syntax(text, QuoteContext::Quoted),
            // Bash decodes it; this module does not.
            "ansi_c_string" => text.contains('\\'),
            "$" => is_translation_sign(node, line),
            "word" if is_leaf => has_active_syntax(text, QuoteContext::Word),
            "regex" | "extglob_pattern" if is_leaf => has_active_syntax(text, QuoteContext::Pattern),
            _ => false,
        };
    }
}

/// Whether this is the sign in front of a string marked for translation: `$"…"`.
pub(super) fn is_translation_sign(node: Node<'_>, line: &str) -> bool {
    let is_sign =
        node.kind() == "$" && line.get(node.byte_range().end..).is_some_and(|rest| rest.starts_with('"'));
    // Inside quotes it is an ordinary character.
    is_sign
        && !node.is_missing()
        && node.parent().is_none_or(|parent| !matches!(parent.kind(), "string" | "heredoc_body"))
}

/// How bash treats the characters of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteContext {
    /// A word without quotes.
    Word,
    /// A pattern, in which brackets and bars are not shell operators.
    Pattern,
    /// Within double quotes, or a here-document.
    Quoted,
}

/// Whether bash would do anything with `text` other than use it literally.
fn has_active_syntax(text: &str, context: QuoteContext) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match c {
            '\\' => {
                chars.next();
            }
            '`' => return true,
            '$' if next.is_some_and(|c| c.is_ascii_alphanumeric() || "_({[@*#?$!-'\"".contains(c)) => {
                // `$'` and `$"` have no special meaning inside quotes.
                let is_quote = next.is_some_and(|c| matches!(c, '\'' | '"'));
                if !(is_quote && context == QuoteContext::Quoted) {
                    return true;
                }
            }
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\'' | '"' if context == QuoteContext::Word => {
                return true;
            }
            ' ' | '\t' | '\n' if context == QuoteContext::Word => return true,
            _ => {}
        }
    }
    false
}

/// Whether a gap consists of what bash treats as blanks: spaces, tabs, newlines, and escaped newlines where words are
/// separated anyway. Bash treats any other character as part of a word.
fn is_blank(line: &str, from: usize, gap: &str) -> bool {
    let plain = gap.replace("\\\n", "");
    // The grammar drops an argument `-` in front of a here-document.
    let is_lost = plain.starts_with([' ', '\t'])
        && plain.ends_with([' ', '\t'])
        && plain.trim_matches([' ', '\t']) == "-";
    let plain = if is_lost { " ".to_owned() } else { plain };
    if !plain.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\n')) {
        return false;
    }
    // Only an escaped newline: the text before and after it is one word.
    if !plain.is_empty() || gap.is_empty() {
        return true;
    }
    let parts = |b: Option<&u8>| b.is_none_or(|b| b" \t\n;&|()<>".contains(b));
    let bytes = line.as_bytes();
    parts(from.checked_sub(1).and_then(|at| bytes.get(at))) || parts(bytes.get(from + gap.len()))
}

/// Whether a comment may start here: `a#b` is a word.
fn can_start_comment(line: &str, at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| line.as_bytes().get(at));
    before.is_none_or(|b| b" \t\n;&|()".contains(b))
}

/// Returns a here-document's delimiter and whether its text is expanded; `None` if the delimiter is not plain.
fn heredoc_delimiter<'a>(redirect: Node<'_>, line: &'a str) -> Option<(&'a str, bool)> {
    let mut children = redirect.walk();
    let start = redirect.children(&mut children).find(|child| child.kind() == "heredoc_start")?;
    let text = line.get(start.byte_range())?;
    let quoted = ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q)?.strip_suffix(*q));
    let word = quoted.unwrap_or(text);
    let is_plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    is_plain.then_some((word, quoted.is_none()))
}

/// Whether bash ends the text where the grammar does, and only operators follow on its first line.
fn is_plain_heredoc(redirect: Node<'_>, line: &str) -> bool {
    let Some((word, _)) = heredoc_delimiter(redirect, line) else { return false };
    let mut children = redirect.walk();
    let mut has_end = false;
    for (at, child) in redirect.children(&mut children).enumerate() {
        let text = line.get(child.byte_range()).unwrap_or_default();
        let is_argument =
            u32::try_from(at).is_ok_and(|at| redirect.field_name_for_child(at) == Some("argument"));
        match child.kind() {
            _ if is_argument => return false,
            // Another one on the same line: their texts are not told apart.
            "heredoc_redirect" => return false,
            "heredoc_body" if text.lines().any(|line| line.trim_start_matches('\t') == word) => return false,
            "heredoc_end" => {
                let rest = line.get(child.end_byte()..).unwrap_or_default();
                has_end =
                    text.trim_start_matches('\t') == word && (rest.is_empty() || rest.starts_with('\n'));
            }
            _ => {}
        }
    }
    has_end
}

fn is_heredoc_expanded(body: Node<'_>, line: &str) -> bool {
    let redirect = body.parent().filter(|parent| parent.kind() == "heredoc_redirect");
    redirect.and_then(|redirect| heredoc_delimiter(redirect, line)).is_none_or(|(_, is_expanded)| is_expanded)
}

/// Returns the lines between backquotes as bash reads them; `None` if one is not closed.
fn backquoted_lines(text: &str) -> Option<Vec<String>> {
    let (mut lines, mut open) = (Vec::new(), None::<String>);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, &mut open) {
            ('\\', None) => {
                chars.next();
            }
            ('\\', Some(line)) => match chars.next() {
                Some(c @ ('`' | '\\' | '$')) => line.push(c),
                Some(c) => line.extend(['\\', c]),
                None => line.push('\\'),
            },
            ('`', None) => open = Some(String::new()),
            ('`', Some(_)) => lines.extend(open.take()),
            (c, Some(line)) => line.push(c),
            (_, None) => {}
        }
    }
    open.is_none().then_some(lines)
}

/// Returns the text outside of backquotes.
fn strip_backquoted(text: &str) -> String {
    let (mut out, mut is_open) = (String::new(), false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next();
                if !is_open {
                    out.push('\\');
                    out.extend(next);
                }
            }
            '`' => is_open = !is_open,
            c if !is_open => out.push(c),
            _ => {}
        }
    }
    out
}
