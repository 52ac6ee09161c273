//! File access of all tools: opens, reads, writes and walks files through the workspace's handle.

pub(super) mod files;
pub(super) mod ignore_files;
pub(super) mod path_suggestions;
pub(super) mod walk;
