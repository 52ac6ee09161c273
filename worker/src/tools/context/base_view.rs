//! Content from before the run for the runtime's own tools. The run loop loads it, because tools have no access to
//! the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use docket_schema::content::WorkspacePath;

/// What was at a path before the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseEntry {
    Absent,
    /// A file, and whether it was executable.
    File(Bytes, bool),
    /// An entry without comparable text, or one that cannot be read now.
    Opaque,
}

/// Content from before the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseView {
    /// Entries from before the run, for paths where snapshots differ from its base.
    pub base_entries: BTreeMap<WorkspacePath, BaseEntry>,
    /// Number of paths that were left out because there are too many.
    pub omitted_count: u32,
    /// The commits before the base, as pinned with it.
    pub recent_commits: Option<String>,
}
