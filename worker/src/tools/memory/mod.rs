//! Memory tools of the wide set: values that outlive a run, stored by the coordinator per repository or queue.
//!
//! There is no tool to list keys: `memory_recall` without a key does that.

mod memory_request;

pub(super) mod delete;
pub(super) mod recall;
pub(super) mod save;
