//! Pinning: a commit of a repository, its submodules too, becomes a base.

pub(super) mod base;
pub(super) mod submodules;
