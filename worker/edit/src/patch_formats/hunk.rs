//! A hunk of a patch (context, removed and added lines) and its conversion into an edit.

use super::{
    super::edit::{Edit, EditHint, HunkAnchor},
    error::PatchParseError,
};

/// A hunk being parsed.
#[derive(Debug, Default)]
pub(super) struct PatchHunk {
    search: Vec<String>,
    replace: Vec<String>,
    anchor: Option<HunkAnchor>,
    /// Number of trailing patch lines that are empty, without even the space of a context line.
    trailing_empty_lines: usize,
    has_changes: bool,
}

impl PatchHunk {
    pub(super) fn new(anchor: Option<HunkAnchor>) -> Self {
        Self { anchor, ..Self::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.search.is_empty() && self.replace.is_empty()
    }

    /// Sets the anchor, unless it is already set.
    pub(super) fn set_anchor(&mut self, anchor: HunkAnchor) {
        self.anchor.get_or_insert(anchor);
    }

    /// Adds a line of the patch. `number` is its line number in the patch, from 1.
    pub(super) fn push_line(&mut self, line: &str, number: usize) -> Result<(), PatchParseError> {
        let bare = line.is_empty();
        self.trailing_empty_lines = if bare { self.trailing_empty_lines + 1 } else { 0 };
        if let Some(text) = line.strip_prefix('-') {
            self.search.push(text.to_owned());
            self.has_changes = true;
        } else if let Some(text) = line.strip_prefix('+') {
            self.replace.push(text.to_owned());
            self.has_changes = true;
        } else if let Some(text) = line.strip_prefix(' ').or(bare.then_some("")) {
            self.search.push(text.to_owned());
            self.replace.push(text.to_owned());
        } else if !line.starts_with('\\') {
            return Err(PatchParseError::new(format!(
                "line {number} of the patch begins with none of ` `, `-` and `+`: every line of a hunk has one \
                 of them before the file's own text"
            )));
        }
        Ok(())
    }

    /// Returns the number of lines before and after, as a header counts them.
    pub(super) fn line_counts(&self) -> (usize, usize) {
        (self.search.len() - self.trailing_empty_lines, self.replace.len() - self.trailing_empty_lines)
    }

    /// Converts the hunk into an edit; `None` if it changes nothing.
    pub(super) fn into_edit(mut self) -> Result<Option<Edit>, PatchParseError> {
        if !self.has_changes {
            return Ok(None);
        }
        let (old, new) = self.line_counts();
        self.search.truncate(old);
        self.replace.truncate(new);
        let placed = self.search.is_empty() && matches!(self.anchor, Some(HunkAnchor::BelowLine(_)));
        if !placed && self.search.iter().all(|line| line.trim().is_empty()) {
            return Err(PatchParseError::new(
                "a hunk only adds lines and quotes none of the file, so it has no place: add a line or two of \
                 context; a new file is made with create_file",
            ));
        }
        let hint = EditHint { anchor: self.anchor, whole_lines: true, ..EditHint::default() };
        Ok(Some(Edit { search: join_lines(&self.search), replace: join_lines(&self.replace), hint }))
    }
}

/// Joins lines, each with its line break.
pub(super) fn join_lines(lines: &[impl AsRef<str>]) -> String {
    lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect()
}
