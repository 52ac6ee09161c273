//! Files on disk, accessed through handles and never through a link.

pub(super) mod dirfd;
pub(super) mod file_stat;
