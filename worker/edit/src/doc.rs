//! The file that is edited, split into lines once for all searches of a call.

use std::cell::OnceCell;

use super::text::{Line, collapse, lines, main_eol};

/// A file prepared for searching. Its text ends with a line end, added where the file lacks it.
#[derive(Debug)]
pub(super) struct Doc<'a> {
    pub(super) text: &'a str,
    pub(super) lines: Vec<Line<'a>>,
    pub(super) eol: &'static str,
    /// Indices of the lines that are not blank.
    pub(super) solid: Vec<usize>,
    collapsed: OnceCell<Vec<String>>,
}

impl<'a> Doc<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let lines = lines(text);
        let eol = main_eol(&lines);
        let solid = (0..lines.len()).filter(|at| !lines[*at].is_blank()).collect();
        Self { text, lines, eol, solid, collapsed: OnceCell::new() }
    }

    /// Whether a line reads so, but for the blanks around it.
    pub(super) fn has_line(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.text.trim() == text.trim())
    }

    /// The solid lines, collapsed.
    pub(super) fn collapsed(&self) -> &[String] {
        self.collapsed.get_or_init(|| self.solid.iter().map(|at| collapse(self.lines[*at].text)).collect())
    }
}
