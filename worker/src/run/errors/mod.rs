//! Errors of a run process, and which of them are faults of the worker rather than the task.

pub(super) mod error_chain;
pub(super) mod executor_error;
pub(super) mod host_faults;
pub(super) mod start_error;
pub(super) mod worker_faults;
