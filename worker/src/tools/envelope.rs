//! The one way in which file tools change a file (E9): a proposal, bound to the hash of what it changes; its dry run;
//! its commit, atomic, which refuses where the file is no longer what the proposal was made for.
//!
//! Every tool that writes a file's bytes goes through here, so that what is refused to one is refused to all.

use docket_schema::{content::WorkPath, redact};

use super::{
    context::ToolContext,
    files::{FileError, Loaded, create, load, replace},
    gate,
    guard::{is_config, is_replaced_whole},
    near,
};
use crate::edit::framed;

/// Largest file that a model may write in one call, in bytes.
pub(super) const CONTENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What a call is about to make of a file.
pub(super) struct Proposal<'a> {
    context: ToolContext<'a>,
    pub(super) path: WorkPath,
    /// The file it is bound to; none where it makes a new one.
    old: Option<Loaded>,
}

impl<'a> Proposal<'a> {
    /// A new file.
    pub(super) const fn new_file(context: ToolContext<'a>, path: WorkPath) -> Self {
        Self { context, path, old: None }
    }

    /// A change of a file that this run has read and that is still what it read (A10).
    ///
    /// # Errors
    /// The refusal, for the model.
    pub(super) fn of_read(context: ToolContext<'a>, path: WorkPath) -> Result<Self, String> {
        let loaded = load(context.root, &path).map_err(|error| near::told(context.root, &error))?;
        match context.read_set.get(&path) {
            None => Err(format!("`{path}` was not read in this run: read it with read_file, then edit it")),
            Some(hash) if *hash != loaded.hash => {
                Err(format!("`{path}` changed on disk since it was read: read it again, then edit it"))
            }
            Some(_) => Ok(Self { context, path, old: Some(loaded) }),
        }
    }

    /// The file's bytes; none of a new one.
    pub(super) fn old(&self) -> &[u8] {
        self.old.as_ref().map_or(&[], |old| &old.bytes)
    }

    /// Says whether `after` may stand in place of `before`, both as text: whether it leaves of a configuration what it
    /// must, and what the language's grammar says. Gives the remark for the model, a line with its break or nothing.
    ///
    /// # Errors
    /// The refusal, for the model.
    pub(super) async fn dry_run(&self, before: Option<&[u8]>, after: &[u8]) -> Result<String, String> {
        let path = &self.path;
        if let Some(before) = before
            && is_config(path)
            && is_replaced_whole(before, after)
        {
            return Err(format!(
                "`{path}` configures the project and is not replaced whole: change the lines in question"
            ));
        }
        gate::syntax(self.context, path, before, after).await
    }

    /// Writes `bytes` as the whole file.
    ///
    /// # Errors
    /// [`FileError`]: nothing is changed then; [`FileError::Raced`] where the file is another by now.
    pub(super) fn commit(&self, bytes: &[u8]) -> Result<(), FileError> {
        match &self.old {
            Some(old) => replace(self.context.root, &self.path, old, bytes),
            None => create(self.context.root, &self.path, bytes),
        }
    }
}

/// Refuses text that no file is to hold: too much of it, marks of secrets, and the frames in which models are shown
/// files. `field` is the argument it came in, `given` the path as the model wrote it.
///
/// # Errors
/// The refusal, for the model.
pub(super) fn check_content(field: &str, given: &str, content: &str, undone: &str) -> Result<(), String> {
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!("`{field}` has {} bytes, more than {CONTENT_BYTES_MAX}", content.len()));
    }
    if redact::holds_mark(content) {
        return Err(format!(
            "`{field}` holds a mark that stands for a secret you were not shown. Leave that value out, or let the \
             program read it from its environment"
        ));
    }
    framed(given, content).map_or(Ok(()), |why| Err(format!("{undone}: {why}")))
}
