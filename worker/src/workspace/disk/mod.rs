//! The tree on disk: reached by handles, never through a link.

pub(super) mod dirfd;
pub(super) mod file_stat;
