//! Errors that keep a run process from starting, and how the run ends then.

use docket_schema::{
    api::{FaultKind, FaultScope, WorkerFault},
    ids::TaskId,
};

use super::{error_chain, host_faults::host_fault};
use crate::client::ClientError;
use crate::run::log::journal::JournalError;

/// Why a run process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The token is empty.
    #[error("the lease's token is empty")]
    EmptyToken,
    /// The coordinator does not answer, or refuses.
    #[error("cannot fetch the run's events from the coordinator")]
    Client(#[from] ClientError),
    /// The log does not fold, or cannot be appended to.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The coordinator was unavailable when a blob was requested. The run is released.
    #[error("{0}")]
    CoordinatorUnavailable(String),
    /// The run's environment cannot be created. The run ends as failed with this message.
    #[error("{0}")]
    Environment(String),
    /// This worker cannot execute the run, and the task is not to blame. Nothing is recorded; the lease is released.
    #[error("{0}")]
    WorkerFault(Box<WorkerFault>),
    /// A setup command's program was not found. `start_run` turns this into a worker fault.
    #[error("{0}")]
    CommandMissing(String),
    /// The configuration cannot be satisfied. The run ends as failed and is not retried.
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

    /// The engine that the run began with, or that its task requests, does not exist.
    pub(in crate::run) fn missing_engine(task: TaskId, engine: &str) -> Self {
        let message = format!("it has no engine {engine}: the run needs a worker of another build");
        Self::from_worker_fault(FaultKind::Engine, FaultScope::Task(task), &message)
    }

    pub(in crate::run) fn from_worker_fault(kind: FaultKind, scope: FaultScope, message: &str) -> Self {
        Self::WorkerFault(Box::new(WorkerFault::new(kind, scope, message)))
    }
}
