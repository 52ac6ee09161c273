//! The edited file, split into lines once for all searches of a call.

use std::cell::OnceCell;

use super::text::{TextLine, collapse_whitespace, dominant_eol, split_lines};

/// A file prepared for searching. Its text ends with a line ending, added if the file lacks it.
#[derive(Debug)]
pub(super) struct SearchDoc<'a> {
    pub(super) text: &'a str,
    pub(super) lines: Vec<TextLine<'a>>,
    pub(super) eol: &'static str,
    /// Indices of the non-blank lines.
    pub(super) non_blank_lines: Vec<usize>,
    collapsed: OnceCell<Vec<String>>,
}

impl<'a> SearchDoc<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let lines = split_lines(text);
        let eol = dominant_eol(&lines);
        let solid = (0..lines.len()).filter(|at| !lines[*at].is_blank()).collect();
        Self { text, lines, eol, non_blank_lines: solid, collapsed: OnceCell::new() }
    }

    /// Returns whether a line equals `text`, ignoring surrounding whitespace.
    pub(super) fn has_line(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.text.trim() == text.trim())
    }

    /// Returns the non-blank lines with collapsed whitespace.
    pub(super) fn collapsed_lines(&self) -> &[String] {
        self.collapsed.get_or_init(|| {
            self.non_blank_lines.iter().map(|at| collapse_whitespace(self.lines[*at].text)).collect()
        })
    }
}
