//! The routes, one file for each group.

pub(crate) mod admin;
pub(super) mod audit;
pub(super) mod commands;
pub(crate) mod runs;
pub(crate) mod tasks;
