//! The repository of a task, pinned at a commit as it is submitted; and what is told of what that leaves out.

use std::path::{Path, PathBuf};

use docket_schema::snapshot::Base;
use docket_worker::workspace::{DirtyTree, PinError, PinNote, PinOptions, Source, pin};

use crate::{
    context::Context,
    history::blobs::Upload,
    output::{
        display,
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Pins a repository, and tells what that leaves out.
pub(crate) async fn pinned(
    cx: &Context,
    upload: &mut Upload<'_>,
    source: Source,
    rev: Option<String>,
    dirty: DirtyTree,
) -> Outcome<Base> {
    let options = PinOptions { rev, dirty, scratch: cx.home.folder("scratch")? };
    let pinned = pin(&source, &options, upload).await;
    let exit = pinned.as_ref().map_or_else(exit_of, |_| Exit::Ok);
    let pinned = pinned.fail_as(exit)?;
    pinned.notes.iter().for_each(|pinned| display::note(&display::line(&pin_note(pinned))));
    Ok(pinned.base)
}

/// A repository, or a commit, that cannot be a task's base is the command line's fault.
const fn exit_of(error: &PinError) -> Exit {
    match error {
        PinError::NoRepository { .. }
        | PinError::SourceFolder { .. }
        | PinError::Elsewhere { .. }
        | PinError::NoFile(_)
        | PinError::NoCommit { .. }
        | PinError::Dirty { .. }
        | PinError::DirtyOfOther
        | PinError::UnsafePath { .. } => Exit::Usage,
        PinError::Git(_) | PinError::Scratch { .. } | PinError::Blob(_) => Exit::Failed,
    }
}

/// What is told of a base that was pinned.
pub(crate) fn pin_note(note: &PinNote) -> String {
    match note {
        PinNote::Submodule(path) => format!(
            "the submodule {path} is an empty folder for the task: its commit is not on this machine; \
             `git submodule update --init {path}` fetches it"
        ),
        PinNote::FilledSubmodule(path) => {
            format!("the submodule {path} is filled at its recorded commit; the task cannot change it")
        }
        PinNote::LfsPointer(path) => format!("{path} is in Git LFS; the task sees its pointer"),
        PinNote::DirtyIncluded(1) => "1 uncommitted path is part of the task's base".to_owned(),
        PinNote::DirtyIncluded(count) => format!("{count} uncommitted paths are part of the task's base"),
    }
}

pub(crate) fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::fs::canonicalize(path).fail_with(Exit::Usage, || {
        format!("there is no folder {}; name an existing one with --repo", path.display())
    })
}
