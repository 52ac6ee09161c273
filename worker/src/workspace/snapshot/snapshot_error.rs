//! Why a workspace was not looked at, or not brought to a tree.

use std::{io, path::PathBuf};

use docket_schema::ids::TreeHash;
use nix::errno::Errno;

use crate::workspace::content_reader::ContentsError;

/// Why a snapshot was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The workspace's folder itself is gone or locked.
    #[error("the workspace folder {path} cannot be read: restore the run from its last snapshot")]
    WorkspaceFolder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Something in it could not be read for a reason that is not the model's doing.
    #[error(
        "`{path}` in the workspace could not be read: check the disk and the limit on open files, then restore"
    )]
    ReadFailed {
        /// Where in the workspace.
        path: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// What a role may not change could not be put back.
    #[error("what a command of a role changed, and may not change, could not be put back")]
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

/// Why the workspace is not what was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It could not be looked at.
    #[error("the workspace could not be looked at")]
    Scan(#[from] SnapshotError),
    /// A content is missing.
    #[error("a recorded content is missing")]
    Contents(#[from] ContentsError),
    /// The file system refused.
    #[error("cannot write `{path}` in the workspace {workspace}: check the permissions and the free space")]
    Io {
        /// Where in the workspace.
        path: String,
        /// Its root.
        workspace: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The result is another tree than recorded.
    #[error(
        "the restored workspace has tree {found}, recorded was {expected}; they differ first at `{first}`: \
         `docket verify` tells whether the log is damaged"
    )]
    TreeMismatch {
        /// The recorded hash.
        expected: TreeHash,
        /// The hash of what is there.
        found: TreeHash,
        /// The first path, in byte order, that differs from the recorded list of paths; empty if that list
        /// itself has another hash than recorded.
        first: String,
    },
    /// What was to be put back is not as it was.
    #[error("what a command changed could not be put back: `{first}` is not as it was before it")]
    NotReverted {
        /// The first path, in byte order, that differs.
        first: String,
    },
    /// The git folder is not what was recorded.
    #[error("the restored git folder differs from the recorded one at `{first}`: restore into a new folder")]
    GitFolderMismatch {
        /// The first path, in byte order, that differs.
        first: String,
    },
}
