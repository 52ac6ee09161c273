//! Routes of runs: events, blobs, results, history, memory.

pub(in crate::http) mod append;
pub(in crate::http) mod blobs;
pub(in crate::http) mod delivery;
pub(in crate::http) mod fork_retry;
pub(in crate::http) mod history;
pub(in crate::http) mod lineage;
pub(in crate::http) mod memory;
pub(in crate::http) mod reports;
pub(in crate::http) mod resolve;
pub(in crate::http) mod run_views;
pub(super) mod task_policy;
