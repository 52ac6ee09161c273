//! Long-running processes: coordinator, worker, and both in one home.

pub(crate) mod home_member;
pub(crate) mod serve;
pub(crate) mod trace_export;
pub(crate) mod up;
pub(crate) mod worker;
pub(crate) mod worker_supervisor;
