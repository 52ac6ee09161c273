//! Turns a commit and its submodules into a base.

pub(super) mod base;
pub(super) mod submodules;
