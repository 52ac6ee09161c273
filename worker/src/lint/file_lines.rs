//! Lines of a file that is being fixed, as the patterns read and change them.

use super::finding::LintFinding;
use crate::syntax::StringLiterals;

/// A file's lines with their line endings, and the positions of its string literals before any change. Findings are
/// fixed from the bottom up, so the positions above a finding are still valid.
pub(super) struct FileLines(pub(super) Vec<String>, StringLiterals);

impl FileLines {
    pub(super) fn new(name: &str, text: &str) -> Self {
        Self(
            text.split_inclusive('\n').map(str::to_owned).collect(),
            StringLiterals::parse(name, text.as_bytes()),
        )
    }

    /// Whether the end of a finding's line may be part of a string literal.
    pub(super) fn is_line_end_in_literal(&self, finding: &LintFinding) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.may_contain_end_of(row))
    }

    /// Whether this byte of a finding's line may be part of a string literal.
    pub(super) fn is_in_literal(&self, finding: &LintFinding, byte: usize) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.may_contain(row, byte))
    }

    /// Positions of the string literals in the current text.
    pub(super) fn current_literals(&self, name: &str) -> StringLiterals {
        StringLiterals::parse(name, self.0.concat().as_bytes())
    }

    pub(super) fn line_mut(&mut self, finding: &LintFinding) -> Option<&mut String> {
        self.0.get_mut(finding.line.checked_sub(1)?)
    }

    /// The line ending that this file uses.
    pub(super) fn line_ending(&self) -> &'static str {
        if self.0.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
    }
}

/// Splits a line into its text and its line ending.
pub(super) fn split_line_ending(line: &str) -> (&str, &str) {
    let text = line.trim_end_matches('\n');
    let text = text.strip_suffix('\r').unwrap_or(text);
    line.split_at(text.len())
}
