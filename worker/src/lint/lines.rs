//! The lines of a file that is mended, as patterns see and change them.

use super::finding::Finding;
use crate::syntax::Literals;

/// A file's lines, each with its end; and where its string literals stood before any of them was changed. Findings
/// are mended from below, and so what is above one still stands there.
pub(super) struct Lines(pub(super) Vec<String>, Literals);

impl Lines {
    pub(super) fn of(name: &str, text: &str) -> Self {
        Self(text.split_inclusive('\n').map(str::to_owned).collect(), Literals::of(name, text.as_bytes()))
    }

    /// Whether the end of a finding's line may be part of a string.
    pub(super) fn end_in_text(&self, finding: &Finding) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.hold_end_of(row))
    }

    /// Whether this byte of a finding's line may be part of a string.
    pub(super) fn in_text(&self, finding: &Finding, byte: usize) -> bool {
        finding.line.checked_sub(1).is_some_and(|row| self.1.hold(row, byte))
    }

    /// Where its string literals stand now.
    pub(super) fn literals(&self, name: &str) -> Literals {
        Literals::of(name, self.0.concat().as_bytes())
    }

    /// The line of a finding.
    pub(super) fn at(&mut self, finding: &Finding) -> Option<&mut String> {
        self.0.get_mut(finding.line.checked_sub(1)?)
    }

    /// How this file ends its lines.
    pub(super) fn end(&self) -> &'static str {
        if self.0.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
    }
}

/// A line without its end, and its end.
pub(super) fn parted(line: &str) -> (&str, &str) {
    let text = line.trim_end_matches('\n');
    let text = text.strip_suffix('\r').unwrap_or(text);
    line.split_at(text.len())
}
