//! What a tool call leaves behind for decisions: its recovery class, and the facts of its result.
//!
//! The worker's tools make these, the log keeps them inline in a result, engines decide by them
//! without opening a blob. Facts are read tolerantly: every field has a default, so that a log
//! written by another version still folds.

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
    /// Only reads the workspace: run again as it is.
    Reads,
    /// Effects end at the workspace: restore the last snapshot, then run again.
    Workspace,
    /// Effects may reach beyond the workspace: never silently run again.
    External,
}

/// Which tools a run's model has. The tools themselves are pinned by their specifications; this is what a task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolSet {
    /// The seven: few on purpose.
    #[default]
    Core,
    /// Files, git, commands, virtual environments and memory, each by a tool of its own.
    Wide,
}

impl ToolSet {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Core, Self::Wide];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Wide => "wide",
        }
    }

    /// Whether it is the one that a run has which asks for none.
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

/// What a command used too much of, and was ended for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExceededResource {
    /// Memory; the kernel ended a process of it.
    Memory,
    /// Processes; the kernel refused it many.
    Processes,
    /// Space or files of the workspace.
    Disk,
    /// Output.
    Output,
}

impl ExceededResource {
    /// As part of a sentence: "it used more … than allowed".
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

/// How an edit's search text was found in the file, from strict to loose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EditLevel {
    /// Nothing was to be done: the file already holds the replacement at its one place.
    AlreadyApplied,
    /// Byte for byte, line ends aside.
    Exact,
    /// But for blanks within and at the ends of lines, and blank lines.
    Whitespace,
    /// But for the depth of indentation.
    Indentation,
    /// But for small slips, by similarity and with every safeguard.
    Fuzzy,
}

/// What a test runner counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that ran and failed.
    pub failed: u32,
    /// Tests that could not be run: collection, compilation, set-up.
    pub errors: u32,
    /// Tests that were left out on purpose.
    pub skipped: u32,
}

impl TestCounts {
    /// All tests that were named, whatever became of them.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.passed.saturating_add(self.failed).saturating_add(self.errors).saturating_add(self.skipped)
    }
}

/// What became of a linter after a batch of edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LintStatus {
    /// It found nothing, or nothing that was not there before the run.
    Clean,
    /// It found something.
    Findings,
    /// Its time limit ended it.
    TimedOut,
    /// It is not installed, or could not be started.
    Missing,
}

/// A linter's word on a batch of edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LintResult {
    /// The linter's name, as pinned.
    pub linter: String,
    /// What became of it.
    pub status: LintStatus,
    /// How many findings it told; at least 1 where it found something. Where it is known what was there before the
    /// run, only those that the run added.
    #[serde(default)]
    pub findings: u32,
    /// How many findings were there before the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub old: u32,
    /// What it found in files that this batch was the first of the run to change, before it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<LintBaseline>,
}

impl LintResult {
    /// A linter's word without any finding.
    #[must_use]
    pub fn without_findings(linter: &str, status: LintStatus) -> Self {
        Self { linter: linter.to_owned(), status, findings: 0, old: 0, before: None }
    }
}

/// What a linter found in files before a run changed them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LintBaseline {
    /// Which files: those that the run made are among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WorkspacePath>,
    /// The findings, each as two short hashes: of its place and words, and of its line's text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// The hash of a file as a call read or wrote it: what "read before write" compares with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersion {
    /// Which file.
    pub path: WorkspacePath,
    /// BLAKE3 of its bytes at that moment.
    pub hash: BlobHash,
}

/// Lines of a file that a result shows, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineRange {
    /// The first one.
    pub first: u64,
    /// The last one, itself included.
    pub last: u64,
}

/// Lines that a call added and removed, over all files it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LineCounts {
    /// Lines in the new files that the old ones lack.
    pub added: u32,
    /// Lines of the old files that the new ones lack.
    pub removed: u32,
}

/// What decisions need to know of a tool result beyond its text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolFacts {
    /// Files as this call read or left them: these enter the run's read set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<FileVersion>,
    /// Lines of the one file of `read` that the result shows; none in logs from before they were noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<LineRange>,
    /// Nothing is shown again: the result says that an earlier one, this call's, shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<CallId>,
    /// Files that a file tool wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<WorkspacePath>,
    /// A command ran: the tree has to be walked to know what changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_have_changed_tree: bool,
    /// Exit status of a command; `None` where none ran or a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The time limit ended the command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// It used too much of this, and was ended for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<ExceededResource>,
    /// The error with numbers, addresses and temporary paths replaced: equal for equal causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_signature: Option<String>,
    /// What a test runner counted, where its output could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Names of tests that failed, as the runner gives them; not all where there are many, and none in logs from
    /// before they were noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// Why tests did not run, or not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<NotRun>,
    /// Files that hold tests, the first ones, where the runner ran none at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unrun: Vec<WorkspacePath>,
    /// Files that held tests in the base and hold none any more; of a final check only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_tests: Vec<WorkspacePath>,
    /// Paths that a command changed and its role may not, the first ones: they are again as they were before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub put_back: Vec<WorkspacePath>,
    /// The loosest level that an edit of this call needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit_level: Option<EditLevel>,
    /// Lines that a file tool added and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineCounts>,
    /// What the workspace differs in from its base; of the call that looks at that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<WorkspaceChanges>,
    /// What linters said of the batch of edits that this call ends; of a final check, that its linter is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lint: Vec<LintResult>,
    /// What a command did on the network, where policy granted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkActivity>,
    /// What a child task came to, of the call that gave it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildFacts>,
}

/// What a child task came to, and what it used: of its parent's budgets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildFacts {
    /// The child.
    pub task: TaskId,
    /// Its last run, where it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How it ended.
    pub state: TaskState,
    /// Tokens of all its runs and of their children.
    pub tokens: u64,
    /// Nano-dollars, likewise.
    pub cost_nusd: u64,
    /// Milliseconds that they worked; 0 in logs from before that was noted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub worked_ms: u64,
    /// Paths that were taken over from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<WorkspacePath>,
    /// Paths that were not, for both changed them.
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
