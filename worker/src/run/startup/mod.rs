//! The start of a run process: what a run that begins pins, what one that goes on restores, the checks on its base.

pub(super) mod base;
pub(super) mod begin;
pub(super) mod context;
pub(super) mod recovery;
pub(super) mod servers;
pub(super) mod start;
