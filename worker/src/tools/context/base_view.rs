//! What tools of the runtime's own are shown of the base and of what came before it: put at hand by the driver, for no
//! tool reaches the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use docket_schema::content::WorkspacePath;

/// What stood at a path before the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseEntry {
    /// Nothing.
    Absent,
    /// A file, and whether it could be executed.
    File(Bytes, bool),
    /// Something that has no text to be compared, or that cannot be read now.
    Opaque,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseView {
    /// What stood before the run where snapshots differ from its base.
    pub base_entries: BTreeMap<WorkspacePath, BaseEntry>,
    /// Paths that are left out there, for there are too many.
    pub omitted_count: u32,
    /// The commits before the base's, as they were pinned with it.
    pub recent_commits: Option<String>,
}
