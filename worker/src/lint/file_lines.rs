//! The lines of a file that is mended, as patterns see and change them.

use super::finding::LintFinding;
use crate::syntax::StringLiterals;

/// A file's lines, each with its end; and where its string literals stood before any of them was changed. Findings
/// are mended from below, and so what is above one still stands there.
pub(super) struct FileLines(pub(super) Vec<String>, StringLiterals);

impl FileLines {
    pub(super) fn new(name: &str, text: &str) -> Self {
        Self(
            text.split_inclusive('\n').map(str::to_owned).collect(),
            StringLiterals::parse(name, text.as_bytes()),
        )
    }

    /// Whether the end of a finding's line may be part of a string.
    pub(super) fn is_line_end_in_literal(&self, finding: &LintFinding) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.may_contain_end_of(row))
    }

    /// Whether this byte of a finding's line may be part of a string.
    pub(super) fn is_in_literal(&self, finding: &LintFinding, byte: usize) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.may_contain(row, byte))
    }

    /// Where its string literals stand now.
    pub(super) fn current_literals(&self, name: &str) -> StringLiterals {
        StringLiterals::parse(name, self.0.concat().as_bytes())
    }

    /// The line of a finding.
    pub(super) fn line_mut(&mut self, finding: &LintFinding) -> Option<&mut String> {
        self.0.get_mut(finding.line.checked_sub(1)?)
    }

    /// How this file ends its lines.
    pub(super) fn line_ending(&self) -> &'static str {
        if self.0.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
    }
}

/// A line without its end, and its end.
pub(super) fn split_line_ending(line: &str) -> (&str, &str) {
    let text = line.trim_end_matches('\n');
    let text = text.strip_suffix('\r').unwrap_or(text);
    line.split_at(text.len())
}
