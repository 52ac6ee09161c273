//! The one way to the files of a workspace: opened, read and written by its handle, and walked.

pub(super) mod files;
pub(super) mod ignore_files;
pub(super) mod path_suggestions;
pub(super) mod walk;
