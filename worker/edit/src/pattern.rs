//! The search and replacement of one edit, as text and as lines.

/// A search and a replacement with `\n` line endings.
#[derive(Debug, Clone)]
pub(super) struct EditPattern {
    pub(super) search: String,
    pub(super) replace: String,
}

/// Search and replacement as whole lines.
#[derive(Debug, Clone)]
pub(super) struct PatternLines {
    pub(super) search: Vec<String>,
    pub(super) replace: Vec<String>,
}

impl PatternLines {
    pub(super) fn from_pattern(pattern: &EditPattern) -> Self {
        let split = |text: &str| -> Vec<String> {
            if text.is_empty() {
                return Vec::new();
            }
            text.strip_suffix('\n').unwrap_or(text).split('\n').map(str::to_owned).collect()
        };
        // Trailing whitespace after the last line break is not a line if the other side ends with that
        // break.
        let trimmed = |text: &str, other: &str| match text.rsplit_once('\n') {
            Some((head, blanks)) if other.ends_with('\n') && blanks.trim().is_empty() => format!("{head}\n"),
            Some(_) | None => text.to_owned(),
        };
        Self {
            search: split(&trimmed(&pattern.search, &pattern.replace)),
            replace: split(&trimmed(&pattern.replace, &pattern.search)),
        }
    }

    /// Returns the indices of the search's non-blank lines.
    pub(super) fn non_blank_indices(&self) -> Vec<usize> {
        (0..self.search.len()).filter(|at| !self.search[*at].trim().is_empty()).collect()
    }
}
