//! Why a run process gives up, and which of it is a fault of its worker and not of the task.

pub(super) mod error_chain;
pub(super) mod executor_error;
pub(super) mod host_faults;
pub(super) mod start_error;
pub(super) mod worker_faults;
