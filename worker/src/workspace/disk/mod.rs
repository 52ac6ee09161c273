//! The tree on disk: reached by handles, never through a link.

pub(super) mod file_stat;
pub(super) mod handles;
