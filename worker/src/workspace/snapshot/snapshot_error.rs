//! Errors of scanning or restoring a workspace.

use std::{io, path::PathBuf};

use docket_schema::ids::TreeHash;
use nix::errno::Errno;

use crate::workspace::content_reader::ContentsError;

/// Why a snapshot was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The workspace's root folder is missing or inaccessible.
    #[error("the workspace folder {path} cannot be read: restore the run from its last snapshot")]
    WorkspaceFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A path could not be read for a reason that the model did not cause.
    #[error(
        "`{path}` in the workspace could not be read: check the disk and the limit on open files, then restore"
    )]
    ReadFailed {
        /// The path in the workspace.
        path: String,
        #[source]
        source: io::Error,
    },
    /// Changes outside a role's write scope could not be reverted.
    #[error("files that a command changed outside its role's write scope could not be restored")]
    RevertFailed(#[source] Box<RestoreError>),
}

impl From<RestoreError> for SnapshotError {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Scan(error) => error,
            error @ (RestoreError::Contents(_)
            | RestoreError::Io { .. }
            | RestoreError::TreeMismatch { .. }
            | RestoreError::NotReverted { .. }
            | RestoreError::GitFolderMismatch { .. }) => Self::RevertFailed(Box::new(error)),
        }
    }
}

impl SnapshotError {
    pub(crate) fn from_read_failure((path, errno): (Vec<u8>, Errno)) -> Self {
        Self::ReadFailed { path: String::from_utf8_lossy(&path).into_owned(), source: errno.into() }
    }
}

/// Why a workspace could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The workspace could not be scanned.
    #[error("the workspace could not be scanned")]
    Scan(#[from] SnapshotError),
    /// A content is missing.
    #[error("recorded content is missing")]
    Contents(#[from] ContentsError),
    /// A file system operation failed.
    #[error("cannot write `{path}` in the workspace {workspace}: check the permissions and the free space")]
    Io {
        /// The path in the workspace.
        path: String,
        /// The workspace's root.
        workspace: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The restored tree differs from the recorded one.
    #[error(
        "the restored workspace has tree {found} instead of the recorded {expected}; the first difference is \
         at `{first}`: `docket verify` checks whether the log is damaged"
    )]
    TreeMismatch {
        /// The recorded hash.
        expected: TreeHash,
        /// The actual hash.
        found: TreeHash,
        /// The first differing path, in byte order; empty if the recorded list of paths itself does not match
        /// the recorded hash.
        first: String,
    },
    /// A path was not reverted correctly.
    #[error("changes made by a command could not be reverted: `{first}` still differs")]
    NotReverted {
        /// The first differing path, in byte order.
        first: String,
    },
    /// The git folder differs from the recorded one.
    #[error("the restored git folder differs from the recorded one at `{first}`: restore into a new folder")]
    GitFolderMismatch {
        /// The first differing path, in byte order.
        first: String,
    },
}
