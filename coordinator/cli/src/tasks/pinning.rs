//! Pins the repository of a task at a commit when it is submitted, and reports what the base does not contain.

use std::path::{Path, PathBuf};

use docket_schema::snapshot::WorkspaceBase;
use docket_worker::workspace::{BaseSource, DirtyTreePolicy, PinError, PinNote, PinOptions, pin_base};

use crate::{
    context::CliContext,
    history::blobs::BlobUpload,
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Pins a repository and prints notes about what its base does not contain.
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

/// An unusable repository or commit is a usage error.
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

/// Formats a note about a pinned base.
pub(crate) fn format_pin_note(note: &PinNote) -> String {
    match note {
        PinNote::EmptySubmodule(path) => format!(
            "the submodule {path} is an empty folder in the task: its commit is not on this machine; \
             run `git submodule update --init {path}` to fetch it"
        ),
        PinNote::FilledSubmodule(path) => {
            format!("the submodule {path} is at its recorded commit; the task cannot change it")
        }
        PinNote::LfsPointer(path) => format!("{path} is stored in Git LFS; the task sees its pointer"),
        PinNote::DirtyIncluded(1) => "1 uncommitted path is part of the task's base".to_owned(),
        PinNote::DirtyIncluded(count) => format!("{count} uncommitted paths are part of the task's base"),
    }
}

pub(crate) fn canonicalize_folder(path: &Path) -> CliResult<PathBuf> {
    std::fs::canonicalize(path).fail_with(ExitKind::Usage, || {
        format!("no folder {}; name an existing one with --repo", path.display())
    })
}
