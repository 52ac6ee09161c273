//! A hunk of a patch: lines that stay, lines that go, lines that come; and the edit it is.

use super::{
    super::edit::{Anchor, Edit, Hint},
    error::FormError,
};

/// A hunk while it is read.
#[derive(Debug, Default)]
pub(super) struct Hunk {
    search: Vec<String>,
    replace: Vec<String>,
    anchor: Option<Anchor>,
    /// Lines of the patch at its end that are empty, without even the blank of a context line.
    bare: usize,
    changes: bool,
}

impl Hunk {
    pub(super) fn new(anchor: Option<Anchor>) -> Self {
        Self { anchor, ..Self::default() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.search.is_empty() && self.replace.is_empty()
    }

    /// Says where the hunk is, unless something said so before.
    pub(super) fn anchor(&mut self, anchor: Anchor) {
        self.anchor.get_or_insert(anchor);
    }

    /// Takes a line of the patch; `number` is its own, from 1.
    pub(super) fn line(&mut self, line: &str, number: usize) -> Result<(), FormError> {
        let bare = line.is_empty();
        self.bare = if bare { self.bare + 1 } else { 0 };
        if let Some(text) = line.strip_prefix('-') {
            self.search.push(text.to_owned());
            self.changes = true;
        } else if let Some(text) = line.strip_prefix('+') {
            self.replace.push(text.to_owned());
            self.changes = true;
        } else if let Some(text) = line.strip_prefix(' ').or(bare.then_some("")) {
            self.search.push(text.to_owned());
            self.replace.push(text.to_owned());
        } else if !line.starts_with('\\') {
            return Err(FormError::new(format!(
                "line {number} of the patch begins with none of ` `, `-` and `+`: every line of a hunk has one \
                 of them before the file's own text"
            )));
        }
        Ok(())
    }

    /// Numbers of lines before and after, as a header counts them.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.search.len() - self.bare, self.replace.len() - self.bare)
    }

    /// The edit; `None` where nothing changes.
    pub(super) fn edit(mut self) -> Result<Option<Edit>, FormError> {
        if !self.changes {
            return Ok(None);
        }
        let (old, new) = self.counts();
        self.search.truncate(old);
        self.replace.truncate(new);
        let placed = self.search.is_empty() && matches!(self.anchor, Some(Anchor::Below(_)));
        if !placed && self.search.iter().all(|line| line.trim().is_empty()) {
            return Err(FormError::new(
                "a hunk only adds lines and quotes none of the file, so it has no place: add a line or two of \
                 context; a new file is made with create_file",
            ));
        }
        let hint = Hint { anchor: self.anchor, whole_lines: true, ..Hint::default() };
        Ok(Some(Edit { search: whole(&self.search), replace: whole(&self.replace), hint }))
    }
}

/// Lines as text, each with its break.
pub(super) fn whole(lines: &[impl AsRef<str>]) -> String {
    lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect()
}
