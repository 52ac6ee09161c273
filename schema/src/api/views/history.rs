//! Bodies about a run's past: its turns in a row, one turn with all it names, the files after it, what differs.
//!
//! The same shapes are what `docket replay --json` prints, so that a program that reads one reads the other. All
//! of it is derived from the log and its blobs; none of it is stored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    content::{Content, WorkspacePath},
    ids::{RunId, Seq, TaskId, Timestamp},
    snapshot::EntryKind,
    tool::TestCounts,
};

/// Most bytes of one recorded file that the API shows; `docket cat` gives larger ones.
pub const FILE_VIEW_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// `GET /v1/runs/{id}/timeline`: a run turn by turn, as much as one line each needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTimeline {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// Seq of the last event of its own stream that this knows: what to follow after.
    pub head: Seq,
    /// The engine and its version; none before it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The models in words; none before it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<String>,
    /// The commit it began from, where it began from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `not ended`, `paused`, `blocked`, or how it ended.
    pub standing: String,
    /// Why it ended as it did, or what it asks, in words; empty where there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The turn where somebody who opens the run wants to begin: of one that failed, where it went wrong.
    pub opens_at: u32,
    /// Why there.
    pub opens_why: String,
    /// Its turns in order; 0 is what came before the first. With `after`, those that take the place of the ones from the
    /// first of them on.
    pub turns: Vec<TimelineTurn>,
}

/// A turn in a [`Timeline`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineTurn {
    /// Its number.
    pub turn: u32,
    /// What the run was about when it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The role that decided it, of an engine with roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Tools that were called, in order of their first call.
    pub tools: Vec<ToolCount>,
    /// What it came to, in a word: `ok`, `exit 1`, `gate failed` …
    pub fate: String,
    /// Whether something failed in it.
    pub failed: bool,
    /// Whether it has ended: whether a fork or a resume may go on from it.
    pub ended: bool,
    /// Whether files changed in it.
    pub changed_files: bool,
    /// Tokens that went to models, those read from a cache among them.
    pub input_tokens: u64,
    /// Tokens that came from them.
    pub output_tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Cost of the run up to and with this turn, in nano-dollars.
    pub cost_so_far_nusd: u64,
    /// When its first event was recorded.
    pub began_at: Timestamp,
    /// When its last event was recorded.
    pub ended_at: Timestamp,
    /// Hash of its last event: two runs that have the same there share their history up to it.
    pub end_hash: String,
    /// Two turns in which the model decided the same have the same here.
    pub decided: String,
    /// Two turns in which the same came of what was called have the same here.
    pub results: String,
}

/// How often a tool was called in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCount {
    /// Its name.
    pub name: String,
    /// Times.
    pub calls: u32,
}

/// `GET /v1/runs/{id}/turn?turn=N`: one turn, and what the run knew after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnResponse {
    /// The turn.
    pub turn: TurnView,
    /// The runtime's ledger after it, as far as it went.
    pub ledger: LedgerView,
    /// What the texts of the model's answers reasoned, where the provider gave it to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<String>,
    /// Diffs are left out: what a workspace held is exact, and this token may not read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diffs_withheld: bool,
}

/// The runtime's ledger of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LedgerView {
    /// The plan as the model gave it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Files that tools of the run changed.
    pub files: Vec<LedgerFile>,
    /// Commands and what came of them, each where it was run last.
    pub commands: Vec<LedgerLine>,
    /// What failed and has not gone well since.
    pub errors: Vec<LedgerLine>,
    /// What people said.
    pub words: Vec<String>,
}

/// A file in a [`LedgerView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerFile {
    /// Where.
    pub path: WorkspacePath,
    /// The run made it.
    pub created: bool,
    /// Calls that changed it.
    pub times: u32,
    /// Lines added by them.
    pub added: u32,
    /// Lines removed by them.
    pub removed: u32,
}

/// What was tried and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerLine {
    /// What was tried.
    pub tried: String,
    /// What came of it.
    pub came_to: String,
}

/// A turn with all that it names. Also a line of `docket replay --json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TurnView {
    /// `view`: from the log alone.
    pub replay: String,
    /// The run.
    pub run: Option<RunId>,
    /// Its number; 0 is what came before the first.
    pub turn: u32,
    /// What the run was about, in order.
    pub phases: Vec<String>,
    /// What the model was newly told before it decided: the task, a person's words, the runtime's.
    pub told: Vec<String>,
    /// Hash of the last attempt's request.
    pub request_hash: Option<String>,
    /// Hash of the last attempt's decision.
    pub decision_hash: Option<String>,
    /// How often the model was asked, each with its request.
    pub attempts: Vec<AttemptView>,
    /// What the model said.
    pub text: String,
    /// What it called, and what came back.
    pub tools: Vec<ToolCallView>,
    /// Final checks.
    pub gates: Vec<GateView>,
    /// Paths that changed.
    pub changes: Vec<ChangeView>,
    /// Hash of the tree after it, where a snapshot was taken.
    pub tree: Option<String>,
    /// Failed attempts at the model, recoveries, limits: what else happened.
    pub notes: Vec<String>,
    /// Tokens that went to models, those read from a cache among them.
    pub input_tokens: u64,
    /// Tokens that came from them.
    pub output_tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// How the run ended, if it did in this turn.
    pub ended: Option<String>,
    /// Its first event.
    pub first_seq: Seq,
    /// Its last event.
    pub last_seq: Seq,
}

/// One attempt at the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// The event that announced it.
    pub seq: Seq,
    /// 1 for the first.
    pub attempt: u32,
    /// Provider and model.
    pub model: String,
    /// Hash of the request.
    pub request_hash: String,
    /// Its size in bytes.
    pub request_bytes: u64,
    /// Hash of the decision to ask it.
    pub decision_hash: String,
    /// `answered`, `failed`; none while no answer is recorded.
    pub outcome: Option<String>,
}

/// A tool call and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCallView {
    /// Its id.
    pub call: String,
    /// The tool.
    pub name: String,
    /// As the model gave them.
    pub args: Value,
    /// Of the tool: `ok`, `failed`, `refused`, `unknown`; none where no result was recorded.
    pub status: Option<String>,
    /// What it came to in a word: its status, or how its command or its tests ended: `exit 7`, `3 failed`.
    pub came_to: Option<String>,
    /// Whether the turn's work failed in it: the tool, its command or its tests.
    pub failed: bool,
    /// Exit status of its command.
    pub exit: Option<i32>,
    /// What a test runner counted.
    pub tests: Option<TestCounts>,
    /// What the model read of it.
    pub result: String,
    /// Size of the whole output in bytes, where `result` is cut.
    pub output_bytes: Option<u64>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// A final check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    /// Its id.
    pub call: String,
    /// What it is called.
    pub name: String,
    /// What was run.
    pub command: String,
    /// Whether it passed; none where no result was recorded.
    pub passed: Option<bool>,
    /// In words: also that a linter is not installed, or that a mending mended nothing.
    pub came_to: String,
    /// What the model reads of it if it failed.
    pub output: String,
    /// Size of the whole output in bytes, where `output` is cut.
    pub output_bytes: Option<u64>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// A path that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeView {
    /// Where.
    pub path: WorkspacePath,
    /// `added`, `changed`, `removed`.
    pub what: String,
    /// The person who changed it in `docket shell`; null where it is the run's work.
    pub by_hand: Option<String>,
    /// Unified, where it is text.
    pub diff: Option<String>,
}

/// `GET /v1/runs/{id}/timeline`: all of it, or what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimelineQuery {
    /// The last event of the run's own stream that is known already: of the turns only those that changed after it are
    /// answered, from the one that holds it on. 0 = all turns.
    pub after: Seq,
}

/// `GET /v1/runs/{id}/turn`: which turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnQuery {
    /// Its number; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

/// `GET /v1/runs/{id}/files`: which path after which turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesQuery {
    /// After this turn; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// A path from the root of the workspace; the root by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A file, link or folder as it was after a turn. Also what `docket cat --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileView {
    /// The run.
    pub run: RunId,
    /// The turn.
    pub turn: u32,
    /// Null for the root.
    pub path: Option<WorkspacePath>,
    /// What stands there.
    pub kind: EntryKind,
    /// Octal, as `chmod` takes it; null for a link.
    pub mode: Option<String>,
    /// Bytes; null for a folder.
    pub size: Option<u64>,
    /// Hash of the content; null for a folder.
    pub hash: Option<String>,
    /// The file's bytes, or the link's target; null for a folder, and for a file that is too large to show.
    pub content: Option<Content>,
    /// What is in a folder; null for what is none.
    pub children: Option<Vec<FolderEntry>>,
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FolderEntry {
    /// Its name.
    pub name: WorkspacePath,
    /// What it is.
    pub kind: EntryKind,
    /// Octal; null for a link.
    pub mode: Option<String>,
    /// Bytes; null for a folder.
    pub size: Option<u64>,
}

/// `GET /v1/runs/{id}/diff`: which two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiffQuery {
    /// The tree after this turn; what the run began from by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The tree after this turn; the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Another run: then `to` is a turn of it, and `from` the newest by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<RunId>,
}

/// What differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffView {
    /// The run of the old tree.
    pub run: RunId,
    /// The turn after which it stood; null for what the run began from.
    pub from: Option<u32>,
    /// The run of the new tree.
    pub with: RunId,
    /// The turn after which it stood.
    pub to: u32,
    /// The paths that differ.
    pub changes: Vec<ChangeView>,
}

/// `GET /v1/runs/{id}/output?call=`: the whole output of a tool call or a final check, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// The call's id.
    pub call: String,
}

/// Forms in which a run can be written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// docket's own: events and blobs, to be imported elsewhere. For administrators: files are in it.
    Docket,
    /// An event a line.
    #[default]
    Jsonl,
    /// The Agent Trajectory Interchange Format.
    Atif,
    /// OpenTelemetry spans in OTLP's JSON form: no prompt, answer or output is in them.
    Otlp,
}

/// `GET /v1/runs/{id}/export?form=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExportQuery {
    /// Which.
    pub form: ExportFormat,
}
