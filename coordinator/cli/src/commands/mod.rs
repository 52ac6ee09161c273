//! The remaining commands, grouped by purpose.

pub(crate) mod admin;
pub(crate) mod local;
pub(crate) mod reports;
pub(crate) mod review;
pub(crate) mod runs;
pub(crate) mod tasks;
