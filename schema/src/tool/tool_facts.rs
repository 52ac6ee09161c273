//! Recorded data of a tool call for decisions: its recovery class, and the facts of its result.
//!
//! The worker's tools create them, the log stores them inline in a result, and engines use them without
//! loading a blob. Facts are decoded tolerantly: every field has a default, so that a log written by another
//! version still folds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{network_activity::NetworkActivity, not_run::NotRun, workspace_changes::WorkspaceChanges};
use crate::{
    content::WorkspacePath,
    event::is_zero,
    ids::{BlobHash, RunId, TaskId},
    message::CallId,
    task_state::TaskState,
};

/// What recovery may do with a call that has an intent and no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryClass {
    /// Only reads the workspace: run again.
    Reads,
    /// Effects are limited to the workspace: restore the last snapshot, then run again.
    Workspace,
    /// Effects may reach beyond the workspace: never run again silently.
    External,
}

/// The set of tools a run's model has. The tools themselves are pinned by their specifications; this is what
/// a task requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolSet {
    /// The seven core tools.
    #[default]
    Core,
    /// Separate tools for files, git, commands, virtual environments and memory.
    Wide,
}

impl ToolSet {
    /// All tool sets.
    pub const ALL: [Self; 2] = [Self::Core, Self::Wide];

    /// Returns the set's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Wide => "wide",
        }
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_core(&self) -> bool {
        *self == Self::Core
    }
}

impl std::str::FromStr for ToolSet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|set| set.as_str() == text).ok_or("it must be core or wide")
    }
}

/// The resource whose limit a command exceeded, for which it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExceededResource {
    /// Memory; the kernel killed one of its processes.
    Memory,
    /// Processes; the kernel refused to create more.
    Processes,
    /// Size or number of files in the workspace.
    Disk,
    /// Output.
    Output,
}

impl ExceededResource {
    /// Returns the resource as part of the sentence "it used more … than allowed".
    #[must_use]
    pub const fn as_noun(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk space",
            Self::Output => "output",
        }
    }
}

/// How an edit's search text was matched, from strict to loose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EditLevel {
    /// Nothing to do: the file already contains the replacement at the only matching place.
    AlreadyApplied,
    /// Byte for byte, except line endings.
    Exact,
    /// Except blanks within and at the end of lines, and blank lines.
    Whitespace,
    /// Except the depth of indentation.
    Indentation,
    /// By similarity, except small typos, with every safeguard.
    Fuzzy,
}

/// Counts reported by a test runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that ran and failed.
    pub failed: u32,
    /// Tests that could not be run: collection, compilation, setup.
    pub errors: u32,
    /// Tests that were skipped on purpose.
    pub skipped: u32,
}

impl TestCounts {
    /// Returns the number of all reported tests.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.passed.saturating_add(self.failed).saturating_add(self.errors).saturating_add(self.skipped)
    }
}

/// Result of a linter after a batch of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LintStatus {
    /// No findings, or none that did not exist before the run.
    Clean,
    /// It reported findings.
    Findings,
    /// It reached its time limit.
    TimedOut,
    /// It is not installed, or could not be started.
    Missing,
}

/// A linter's result for a batch of edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LintResult {
    /// The linter's name, as pinned.
    pub linter: String,
    /// The result.
    pub status: LintStatus,
    /// Number of findings; at least 1 if there are any. If the findings from before the run are known, only
    /// those the run added.
    #[serde(default)]
    pub findings: u32,
    /// Number of findings from before the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub old: u32,
    /// Findings from before the run in files that this batch was the first to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<LintBaseline>,
}

impl LintResult {
    /// Creates a result without findings.
    #[must_use]
    pub fn without_findings(linter: &str, status: LintStatus) -> Self {
        Self { linter: linter.to_owned(), status, findings: 0, old: 0, before: None }
    }
}

/// A linter's findings in files before a run changed them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LintBaseline {
    /// The files, including those the run created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WorkspacePath>,
    /// The findings, each as two short hashes: of its location and message, and of its line's text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// The hash of a file as a call read or wrote it, used to enforce "read before write".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersion {
    /// The file.
    pub path: WorkspacePath,
    /// BLAKE3 hash of its bytes at that time.
    pub hash: BlobHash,
}

/// A range of lines of a file shown in a result, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineRange {
    /// The first line.
    pub first: u64,
    /// The last line, inclusive.
    pub last: u64,
}

/// Lines that a call added and removed, over all files it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LineCounts {
    /// Lines of the new files that the old ones do not have.
    pub added: u32,
    /// Lines of the old files that the new ones do not have.
    pub removed: u32,
}

/// Facts of a tool result that decisions need in addition to its text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolFacts {
    /// Files as this call read or wrote them; they are added to the run's read set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<FileVersion>,
    /// Lines of the single file in `read` that the result shows; empty in older logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<LineRange>,
    /// The result shows nothing and refers to the result of this earlier call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<CallId>,
    /// Files that a file tool wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<WorkspacePath>,
    /// A command ran: the tree must be scanned to find out what changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_have_changed_tree: bool,
    /// Exit status of a command; `None` if none ran or a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Whether the command reached its time limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The resource limit it exceeded, for which it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<ExceededResource>,
    /// The error with numbers, addresses and temporary paths replaced: equal for equal causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_signature: Option<String>,
    /// Test counts, if the runner's output could be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Names of failed tests as the runner reports them; incomplete if there are many, and empty in older
    /// logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// Why tests did not run, or not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<NotRun>,
    /// The first files with tests, if the runner ran none at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unrun: Vec<WorkspacePath>,
    /// Files that had tests in the base and have none now; for a final check only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_tests: Vec<WorkspacePath>,
    /// The first paths that a command changed outside its role's write scope; they were restored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub put_back: Vec<WorkspacePath>,
    /// The loosest match level that an edit of this call needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit_level: Option<EditLevel>,
    /// Lines that a file tool added and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
    /// Changes of the workspace relative to its base; for the call that determines them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<WorkspaceChanges>,
    /// Linter results for the batch of edits that this call ends; for a final check, that its linter is not
    /// installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lint: Vec<LintResult>,
    /// Network activity of a command with a network grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkActivity>,
    /// Result of a child task, for the call that delegated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildFacts>,
}

/// Result of a child task, and its use of the parent's budgets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildFacts {
    /// The child.
    pub task: TaskId,
    /// The child's last run, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How it ended.
    pub state: TaskState,
    /// Tokens of all its runs and of their children.
    pub tokens: u64,
    /// Cost of these in nano-dollars.
    pub cost_nusd: u64,
    /// Working time of these in milliseconds; 0 in older logs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub worked_ms: u64,
    /// Paths that were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<WorkspacePath>,
    /// Conflicting paths, which were not merged because both sides changed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<WorkspacePath>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_from_other_versions_are_readable() {
        let facts: ToolFacts =
            serde_json::from_str(r#"{"exit":1,"weather":"fine","tests":{"passed":2,"flaky":1}}"#)
                .expect("unknown and missing fields are no fault");
        assert_eq!(facts.exit, Some(1));
        assert_eq!(facts.tests.map(TestCounts::total), Some(2));
    }

    #[test]
    fn empty_facts_cost_two_bytes() {
        assert_eq!(serde_json::to_string(&ToolFacts::default()).expect("serializes"), "{}");
    }

    #[test]
    fn levels_are_ordered_from_strict_to_loose() {
        assert!(EditLevel::AlreadyApplied < EditLevel::Exact && EditLevel::Indentation < EditLevel::Fuzzy);
    }
}
