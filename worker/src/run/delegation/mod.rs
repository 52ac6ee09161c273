//! Delegation of work to child tasks, and merging their results.

pub(super) mod child_report;
pub(super) mod child_start;
pub(super) mod open_calls;
