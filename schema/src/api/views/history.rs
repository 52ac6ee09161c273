//! Views of a run's history: timeline, single turns, files and diffs.
//!
//! `docket replay --json` prints the same structures, so a program needs only one parser. Everything is
//! derived from the log and its blobs; nothing is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    content::{Content, WorkspacePath},
    ids::{RunId, Seq, TaskId, Timestamp},
    snapshot::EntryKind,
    tool::TestCounts,
};

/// Maximum size of a recorded file that the API shows, in bytes; `docket cat` prints larger ones.
pub const FILE_VIEW_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// `GET /v1/runs/{id}/timeline`: one line of data per turn of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTimeline {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// Sequence number of the last event of its own stream that is included; follow the stream from here.
    pub head: Seq,
    /// The engine and its version; none before the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The models as text; none before the run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<String>,
    /// The commit it started from, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `not ended`, `paused`, `blocked`, or the outcome.
    pub standing: String,
    /// Why it ended that way, or its question; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The turn to open first: for a failed run, the turn in which the failure began.
    pub opens_at: u32,
    /// Why that turn is opened first.
    pub opens_why: String,
    /// The turns in order; turn 0 is what happened before the first. With `after`, these replace the known
    /// turns from the first one here onward.
    pub turns: Vec<TimelineTurn>,
}

/// A turn in a [`RunTimeline`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineTurn {
    /// The turn's number.
    pub turn: u32,
    /// The run's phase at the end of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The role that made the decision, for engines with roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The tools called, in order of their first call.
    pub tools: Vec<ToolCount>,
    /// One-word outcome of the turn: `ok`, `exit 1`, `gate failed` …
    pub fate: String,
    /// Whether something failed in the turn.
    pub failed: bool,
    /// Whether the turn has ended, so that a fork or resume can continue from it.
    pub ended: bool,
    /// Whether files changed in the turn.
    pub changed_files: bool,
    /// Tokens sent to models, including those read from a cache.
    pub input_tokens: u64,
    /// Tokens received from models.
    pub output_tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Cost of the run up to and including this turn, in nano-dollars.
    pub cost_so_far_nusd: u64,
    /// When its first event was recorded.
    pub began_at: Timestamp,
    /// When its last event was recorded.
    pub ended_at: Timestamp,
    /// Hash of the turn's last event: runs with the same hash share their history up to it.
    pub end_hash: String,
    /// Digest of the model's decision: equal for turns with the same decision.
    pub decided: String,
    /// Digest of the call results: equal for turns with the same results.
    pub results: String,
}

/// Number of calls of a tool in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCount {
    /// The tool's name.
    pub name: String,
    /// Number of calls.
    pub calls: u32,
}

/// `GET /v1/runs/{id}/turn?turn=N`: one turn, and the runtime's ledger after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnResponse {
    /// The turn.
    pub turn: TurnView,
    /// The runtime's ledger after the turn, or after its last recorded event.
    pub ledger: LedgerView,
    /// The model's reasoning texts, if the provider returned them in readable form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<String>,
    /// Whether diffs are omitted because this token may not read exact workspace contents.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diffs_withheld: bool,
}

/// The runtime's ledger of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LedgerView {
    /// The model's latest plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Files changed by tools of the run.
    pub files: Vec<LedgerFile>,
    /// Commands and their results, each in the place of its latest run.
    pub commands: Vec<LedgerLine>,
    /// Failures that have not been resolved since.
    pub errors: Vec<LedgerLine>,
    /// Messages from people.
    pub words: Vec<String>,
}

/// A file in a [`LedgerView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerFile {
    /// The file's path.
    pub path: WorkspacePath,
    /// Whether the run created it.
    pub created: bool,
    /// Number of calls that changed it.
    pub times: u32,
    /// Number of lines these calls added.
    pub added: u32,
    /// Number of lines these calls removed.
    pub removed: u32,
}

/// An attempt and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerLine {
    /// What was attempted.
    pub tried: String,
    /// The result.
    pub came_to: String,
}

/// A turn with everything it refers to. Also one line of `docket replay --json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TurnView {
    /// `view`: derived from the log alone.
    pub replay: String,
    /// The run.
    pub run: Option<RunId>,
    /// The turn's number; 0 is what happened before the first turn.
    pub turn: u32,
    /// The run's phases during the turn, in order.
    pub phases: Vec<String>,
    /// New input to the model before its decision: the task, a person's messages, the runtime's reminders.
    pub told: Vec<String>,
    /// Hash of the last attempt's request.
    pub request_hash: Option<String>,
    /// Hash of the last attempt's decision.
    pub decision_hash: Option<String>,
    /// The attempts to call the model, each with its request.
    pub attempts: Vec<AttemptView>,
    /// The model's text.
    pub text: String,
    /// The tool calls and their results.
    pub tools: Vec<ToolCallView>,
    /// The final checks.
    pub gates: Vec<GateView>,
    /// The paths that changed.
    pub changes: Vec<ChangeView>,
    /// Hash of the tree after the turn, if a snapshot was taken.
    pub tree: Option<String>,
    /// Other events: failed model attempts, recoveries, limits.
    pub notes: Vec<String>,
    /// Tokens sent to models, including those read from a cache.
    pub input_tokens: u64,
    /// Tokens received from models.
    pub output_tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// How the run ended, if it ended in this turn.
    pub ended: Option<String>,
    /// The turn's first event.
    pub first_seq: Seq,
    /// The turn's last event.
    pub last_seq: Seq,
}

/// One attempt to call the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// The event that announced the attempt.
    pub seq: Seq,
    /// The attempt's number, starting at 1.
    pub attempt: u32,
    /// Provider and model.
    pub model: String,
    /// Hash of the request.
    pub request_hash: String,
    /// Size of the request in bytes.
    pub request_bytes: u64,
    /// Hash of the decision to call the model.
    pub decision_hash: String,
    /// `answered`, `failed`; none if no reply is recorded yet.
    pub outcome: Option<String>,
}

/// A tool call and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCallView {
    /// The call's id.
    pub call: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them.
    pub args: Value,
    /// The tool's status: `ok`, `failed`, `refused`, `unknown`; none if no result was recorded.
    pub status: Option<String>,
    /// One-word outcome: the tool's status, or how its command or tests ended: `exit 7`, `3 failed`.
    pub came_to: Option<String>,
    /// Whether the tool, its command or its tests failed.
    pub failed: bool,
    /// Exit status of the tool's command.
    pub exit: Option<i32>,
    /// Counts reported by the test runner.
    pub tests: Option<TestCounts>,
    /// The result as the model read it.
    pub result: String,
    /// Size of the full output in bytes, if `result` is truncated.
    pub output_bytes: Option<u64>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// A final check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    /// The check's id.
    pub call: String,
    /// The check's name.
    pub name: String,
    /// The command that was run.
    pub command: String,
    /// Whether it passed; none where no result was recorded.
    pub passed: Option<bool>,
    /// The result as text; also if a linter is not installed, or if an automatic fix changed nothing.
    pub came_to: String,
    /// The output shown to the model if the check failed.
    pub output: String,
    /// Size of the full output in bytes, if `output` is truncated.
    pub output_bytes: Option<u64>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// A path that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeView {
    /// The path.
    pub path: WorkspacePath,
    /// `added`, `changed`, `removed`.
    pub what: String,
    /// The person who changed it in `docket shell`; null if the run changed it.
    pub by_hand: Option<String>,
    /// Unified diff, if the file is text.
    pub diff: Option<String>,
}

/// `GET /v1/runs/{id}/timeline`: the complete timeline, or what changed since an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimelineQuery {
    /// The last known event of the run's own stream: only turns from the one that contains it onward are
    /// returned. 0 returns all turns.
    pub after: Seq,
}

/// `GET /v1/runs/{id}/turn`: selects a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnQuery {
    /// The turn's number; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

/// `GET /v1/runs/{id}/files`: selects a path and a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesQuery {
    /// The workspace after this turn; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// A path relative to the workspace root; the root by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A file, link or folder after a turn. Also the output of `docket cat --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileView {
    /// The run.
    pub run: RunId,
    /// The turn.
    pub turn: u32,
    /// The path; null for the root.
    pub path: Option<WorkspacePath>,
    /// The kind of entry.
    pub kind: EntryKind,
    /// Octal mode, as for `chmod`; null for a link.
    pub mode: Option<String>,
    /// Size in bytes; null for a folder.
    pub size: Option<u64>,
    /// Hash of the content; null for a folder.
    pub hash: Option<String>,
    /// The file's bytes or the link's target; null for a folder, and for a file that is too large to show.
    pub content: Option<Content>,
    /// The folder's entries; null if it is not a folder.
    pub children: Option<Vec<FolderEntry>>,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FolderEntry {
    /// The entry's name.
    pub name: WorkspacePath,
    /// The kind of entry.
    pub kind: EntryKind,
    /// Octal mode; null for a link.
    pub mode: Option<String>,
    /// Size in bytes; null for a folder.
    pub size: Option<u64>,
}

/// `GET /v1/runs/{id}/diff`: selects the two trees to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiffQuery {
    /// The tree after this turn; by default, the tree the run started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The tree after this turn; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Another run to compare with: `to` is then a turn of that run, and `from` defaults to the newest turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<RunId>,
}

/// The differences between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffView {
    /// The run of the old tree.
    pub run: RunId,
    /// The turn of the old tree; null for the tree the run started from.
    pub from: Option<u32>,
    /// The run of the new tree.
    pub with: RunId,
    /// The turn of the new tree.
    pub to: u32,
    /// The paths that differ.
    pub changes: Vec<ChangeView>,
}

/// `GET /v1/runs/{id}/output?call=`: the full recorded output of a tool call or a final check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// The call's id.
    pub call: String,
}

/// Formats in which a run can be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// docket's format: events and blobs, for import elsewhere. Administrators only, because it contains
    /// files.
    Docket,
    /// One event per line.
    #[default]
    Jsonl,
    /// The Agent Trajectory Interchange Format.
    Atif,
    /// OpenTelemetry spans in OTLP's JSON encoding, without prompts, replies or outputs.
    Otlp,
}

/// `GET /v1/runs/{id}/export?form=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExportQuery {
    /// The format.
    pub form: ExportFormat,
}
