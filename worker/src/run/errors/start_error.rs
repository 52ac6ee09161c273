//! Why a run process cannot begin its work, and what becomes of the run then.

use docket_schema::{
    ids::TaskId,
    wire::{FaultKind, FaultScope, WorkerFault},
};

use super::{causes, host_faults::fault_of_host};
use crate::client::ClientError;
use crate::run::log::journal::JournalError;

/// Why a run process cannot begin its work.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The token is none.
    #[error("the lease's token is empty")]
    Token,
    /// The coordinator does not answer, or refuses.
    #[error("the coordinator does not give the run's events")]
    Client(#[from] ClientError),
    /// The log does not fold, or cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The coordinator was away when a blob was asked for. The run is given back.
    #[error("{0}")]
    Away(String),
    /// The world around the run cannot be made. The run ends as failed with this message.
    #[error("{0}")]
    Environment(String),
    /// This worker cannot carry out the run, and the task is not to blame. Nothing is recorded; the lease is given back.
    #[error("{0}")]
    Worker(Box<WorkerFault>),
    /// A setup command's program was not found. `start` makes a fault of the worker of it.
    #[error("{0}")]
    CommandMissing(String),
    /// What was asked for cannot be had as it is configured. The run ends as failed, and no other is tried.
    #[error("{0}")]
    Configuration(String),
}

impl StartError {
    pub(in crate::run) fn environment(error: &(dyn std::error::Error + 'static)) -> Self {
        let told = causes::told(error);
        if causes::is_away(error) {
            return Self::Away(told);
        }
        match fault_of_host(error) {
            Some(fault) => Self::Worker(Box::new(fault)),
            None => Self::Environment(told),
        }
    }

    /// The engine is missing that a run was begun with, or that its task asks for.
    pub(in crate::run) fn no_engine(task: TaskId, engine: &str) -> Self {
        let message = format!("it has no engine {engine}: the run needs a worker of another build");
        Self::worker(FaultKind::Engine, FaultScope::Task(task), &message)
    }

    pub(in crate::run) fn worker(kind: FaultKind, scope: FaultScope, message: &str) -> Self {
        Self::Worker(Box::new(WorkerFault::new(kind, scope, message)))
    }
}
