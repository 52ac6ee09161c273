//! The tools of the wide set for what is remembered beyond a run: kept by the coordinator, for a repository or a queue.
//!
//! There is no tool to list keys: `memory_recall` without a key does.

mod memory_request;

pub(super) mod delete;
pub(super) mod recall;
pub(super) mod save;
