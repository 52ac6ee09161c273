//! Why a driver gives up.

use docket_schema::api::WorkerFault;

use crate::run::log::journal::JournalError;
use crate::{
    model::RenderError,
    workspace::{BlobError, RestoreError, SnapshotError},
};

/// Conclusions in a row, at most: an engine that concludes without end is wrong.
pub(in crate::run) const CONCLUSIONS_MAX: usize = 64;

/// Why a driver gave up. The run is not lost: its log says where it stands.
#[derive(Debug, thiserror::Error)]
pub enum RunExecutorError {
    /// An append failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A request cannot be rendered.
    #[error("the model request of this turn cannot be rendered")]
    Render(#[from] RenderError),
    /// A blob is not to be had.
    #[error("something the run's log refers to is not to be had")]
    Blob(#[from] BlobError),
    /// A tool specification does not decode.
    #[error("the pinned tool specifications do not decode")]
    ToolSpecs(#[source] serde_json::Error),
    /// The workspace cannot be looked at.
    #[error("the workspace cannot be looked at")]
    Snapshot(#[from] SnapshotError),
    /// A tree from which a child starts does not decode.
    #[error("the tree from which a child starts does not decode")]
    StartTree(#[source] serde_json::Error),
    /// What a child changed cannot be brought in.
    #[error("what a child changed cannot be brought into the workspace")]
    MergeChild(#[source] Box<RestoreError>),
    /// The rendered request of a resumed call is not the one that was recorded.
    #[error("the request of {call} renders to other bytes than were recorded; `docket verify` shows where")]
    RequestDiverged {
        /// The call.
        call: String,
    },
    /// The engine concludes and concludes.
    #[error(
        "the engine comes to no decision: it concluded {CONCLUSIONS_MAX} times in a row; `docket verify` shows what"
    )]
    TooManyUpdates,
    /// This worker cannot carry out the run, and the task is not to blame. Nothing is recorded of it.
    #[error("{0}")]
    WorkerFault(Box<WorkerFault>),
    /// The engine decided nothing that can follow.
    #[error("the run is {0}; there is nothing to decide")]
    NotDeciding(&'static str),
}

impl RunExecutorError {
    /// Whether another process would only pay for the same end again: it is the run's end then. The
    /// rest is a crash's to mend, or the coordinator's return.
    pub(in crate::run) const fn is_final(&self) -> bool {
        match self {
            Self::Journal(JournalError::Refused(_))
            | Self::Render(_)
            | Self::ToolSpecs(_)
            | Self::StartTree(_)
            | Self::RequestDiverged { .. }
            | Self::TooManyUpdates
            | Self::Blob(BlobError::Missing(_) | BlobError::Damaged(_)) => true,
            Self::Journal(
                JournalError::LeaseLost(_)
                | JournalError::Unreachable(_)
                | JournalError::Corrupt(_)
                | JournalError::Contended,
            )
            | Self::Blob(BlobError::Unavailable(_))
            | Self::Snapshot(_)
            | Self::MergeChild(_)
            | Self::WorkerFault(_)
            | Self::NotDeciding(_) => false,
        }
    }
}
