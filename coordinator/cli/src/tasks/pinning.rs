//! The repository of a task, pinned at a commit as it is submitted; and what is told of what that leaves out.

use std::path::{Path, PathBuf};

use docket_schema::snapshot::WorkspaceBase;
use docket_worker::workspace::{BaseSource, DirtyTreePolicy, PinError, PinNote, PinOptions, pin};

use crate::{
    context::CliContext,
    history::blobs::BlobUpload,
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Pins a repository, and tells what that leaves out.
pub(crate) async fn pin_and_note(
    cx: &CliContext,
    upload: &mut BlobUpload<'_>,
    source: BaseSource,
    rev: Option<String>,
    dirty: DirtyTreePolicy,
) -> CliResult<WorkspaceBase> {
    let options = PinOptions { rev, dirty, scratch: cx.home.ensure_folder("scratch")? };
    let pinned = pin_base(&source, &options, upload).await;
    let exit = pinned.as_ref().map_or_else(exit_for_pin_error, |_| ExitKind::Ok);
    let pinned = pinned.fail_as(exit)?;
    pinned
        .notes
        .iter()
        .for_each(|pinned| display::print_note(&display::sanitize_line(&format_pin_note(pinned))));
    Ok(pinned.base)
}

/// A repository, or a commit, that cannot be a task's base is the command line's fault.
const fn exit_for_pin_error(error: &PinError) -> ExitKind {
    match error {
        PinError::NoRepository { .. }
        | PinError::SourceFolder { .. }
        | PinError::OutsideRepository { .. }
        | PinError::NotARegularFile(_)
        | PinError::UnknownCommit { .. }
        | PinError::DirtyTree { .. }
        | PinError::DirtyWithRevision
        | PinError::UnsafePath { .. } => ExitKind::Usage,
        PinError::Git(_) | PinError::ScratchFolder { .. } | PinError::Blob(_) => ExitKind::Failed,
    }
}

/// What is told of a base that was pinned.
pub(crate) fn format_pin_note(note: &PinNote) -> String {
    match note {
        PinNote::EmptySubmodule(path) => format!(
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

pub(crate) fn canonicalize_folder(path: &Path) -> CliResult<PathBuf> {
    std::fs::canonicalize(path).fail_with(ExitKind::Usage, || {
        format!("there is no folder {}; name an existing one with --repo", path.display())
    })
}
