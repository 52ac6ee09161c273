//! Work that is given away to child tasks, and what of it is brought in.

pub(super) mod child_report;
pub(super) mod child_start;
pub(super) mod open_calls;
