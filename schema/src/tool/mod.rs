//! Recorded data of a tool call that decisions need: its recovery class, and the facts of its result.

mod network_activity;
mod not_run;
mod tool_facts;
mod workspace_changes;

pub use network_activity::{NETWORK_HOSTS_MAX, NetworkActivity, ReachedHost, RefusedHost};
pub use not_run::{CheckProgress, NotRun, NotRunCause};
pub use tool_facts::{
    ChildFacts, EditLevel, ExceededResource, FileVersion, LineCounts, LineRange, LintBaseline, LintResult,
    LintStatus, RecoveryClass, TestCounts, ToolFacts, ToolSet,
};
pub use workspace_changes::{FileChangeKind, FileDiff, Hunk, WorkspaceChanges};
