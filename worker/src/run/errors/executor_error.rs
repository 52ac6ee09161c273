//! Errors that stop a run executor.

use docket_schema::api::WorkerFault;

use crate::run::log::journal::JournalError;
use crate::{
    model::RenderError,
    workspace::{BlobError, RestoreError, SnapshotError},
};

/// Consecutive conclusions allowed: an engine that keeps concluding is broken.
pub(in crate::run) const CONCLUSIONS_MAX: usize = 64;

/// Why a run executor stopped. The run is not lost: its log holds its state.
#[derive(Debug, thiserror::Error)]
pub enum RunExecutorError {
    /// An append failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A request cannot be rendered.
    #[error("the model request of this turn cannot be rendered")]
    Render(#[from] RenderError),
    /// A blob cannot be read.
    #[error("a blob that the run's log refers to cannot be read")]
    Blob(#[from] BlobError),
    /// A tool specification does not decode.
    #[error("the pinned tool specifications do not decode")]
    ToolSpecs(#[source] serde_json::Error),
    /// The workspace cannot be read.
    #[error("the workspace cannot be read")]
    Snapshot(#[from] SnapshotError),
    /// The tree a child starts from does not decode.
    #[error("the tree a child starts from does not decode")]
    StartTree(#[source] serde_json::Error),
    /// A child's changes cannot be merged.
    #[error("a child's changes cannot be merged into the workspace")]
    MergeChild(#[source] Box<RestoreError>),
    /// The rendered request of a resumed call differs from the recorded one.
    #[error("the request of {call} does not render to the recorded bytes; `docket verify` shows where")]
    RequestDiverged {
        /// The call.
        call: String,
    },
    /// The engine concludes without ever deciding.
    #[error(
        "the engine reaches no decision: it concluded {CONCLUSIONS_MAX} times in a row; `docket verify` shows details"
    )]
    TooManyUpdates,
    /// This worker cannot execute the run, and the task is not to blame. Nothing is recorded.
    #[error("{0}")]
    WorkerFault(Box<WorkerFault>),
    /// The engine made no decision that can follow.
    #[error("the run is {0}; there is nothing to decide")]
    NotDeciding(&'static str),
}

impl RunExecutorError {
    /// Whether a retry in another process would only pay to reach the same error, so that the run ends here. Other
    /// errors are resolved by a restart or when the coordinator returns.
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
