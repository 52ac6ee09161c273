//! Why a run process cannot begin its work, and what becomes of the run then.

use docket_schema::{
    api::{FaultKind, FaultScope, WorkerFault},
    ids::TaskId,
};

use super::{error_chain, host_faults::host_fault};
use crate::client::ClientError;
use crate::run::log::journal::JournalError;

/// Why a run process cannot begin its work.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The token is none.
    #[error("the lease's token is empty")]
    EmptyToken,
    /// The coordinator does not answer, or refuses.
    #[error("the coordinator does not give the run's events")]
    Client(#[from] ClientError),
    /// The log does not fold, or cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The coordinator was away when a blob was asked for. The run is given back.
    #[error("{0}")]
    CoordinatorUnavailable(String),
    /// The world around the run cannot be made. The run ends as failed with this message.
    #[error("{0}")]
    Environment(String),
    /// This worker cannot carry out the run, and the task is not to blame. Nothing is recorded; the lease is given back.
    #[error("{0}")]
    WorkerFault(Box<WorkerFault>),
    /// A setup command's program was not found. `start` makes a fault of the worker of it.
    #[error("{0}")]
    CommandMissing(String),
    /// What was asked for cannot be had as it is configured. The run ends as failed, and no other is tried.
    #[error("{0}")]
    Configuration(String),
}

impl StartError {
    pub(in crate::run) fn from_environment_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let told = error_chain::format_chain(error);
        if error_chain::is_coordinator_unavailable(error) {
            return Self::CoordinatorUnavailable(told);
        }
        match host_fault(error) {
            Some(fault) => Self::WorkerFault(Box::new(fault)),
            None => Self::Environment(told),
        }
    }

    /// The engine is missing that a run was begun with, or that its task asks for.
    pub(in crate::run) fn missing_engine(task: TaskId, engine: &str) -> Self {
        let message = format!("it has no engine {engine}: the run needs a worker of another build");
        Self::from_worker_fault(FaultKind::Engine, FaultScope::Task(task), &message)
    }

    pub(in crate::run) fn from_worker_fault(kind: FaultKind, scope: FaultScope, message: &str) -> Self {
        Self::WorkerFault(Box::new(WorkerFault::new(kind, scope, message)))
    }
}
