//! The events of a run's stream. Each is a fact; what an engine concludes from them is not here.
//!
//! A turn takes two appends: {`ModelAnswered`, intents} and {results, `SnapshotTaken`, the next
//! `ModelRequested`}. Intents (`…Requested`) are durable before their effect starts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pin::{EngineRef, GateSpec, Models, Prompts, RunSettings, SandboxLayers};
use crate::{
    content::{BlobRef, Content, WorkPath},
    event::typed_events,
    ids::{DecisionHash, EventHash, IncarnationId, RunId, Seq, TaskId, TreeHash, Turn},
    message::{CallId, ModelRef, Part, StopReason, Usage},
    snapshot::{Base, LeftOut, PathChange},
    tool::{RecoveryClass, ToolFacts},
};

typed_events! {
    /// An event of a run's stream.
    pub enum RunEvent {
        RunStarted 1,
        Forked 1,
        RunRecovered 1,
        SetupFinished 1,
        PhaseChanged 1,
        ModelRequested 1,
        ModelAnswered 1,
        ModelFailed 1,
        ToolRequested 1,
        ToolFinished 1,
        SnapshotTaken 1,
        GateRequested 1,
        GateFinished 1,
        Told 1,
        CancelRequested 1,
        PauseRequested 1,
        Unpaused 1,
        PolicyChanged 1,
        LimitReached 1,
        RunPaused 1,
        RunBlocked 1,
        BlockerAnswered 1,
        Delegated 1,
        ChildAnswered 1,
        Compacted 1,
        WorkspaceEdited 1,
        RunEnded 1,
    }
}

/// A run begins. Pins everything its decisions depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunStarted {
    /// The task this is a try of.
    pub task: TaskId,
    /// This run.
    pub run: RunId,
    /// How manieth run of the task this is, from 1.
    pub attempt: u32,
    /// The engine and the version of its rules.
    pub engine: EngineRef,
    /// Models, limits and prices.
    pub models: Models,
    /// Settings in force.
    pub settings: RunSettings,
    /// Prompt texts and tool schemas.
    pub prompts: Prompts,
    /// The tree it starts from.
    pub base: Base,
    /// Checks that must pass at the end.
    #[serde(default)]
    pub gates: Vec<GateSpec>,
    /// Paths that must exist at the end.
    #[serde(default)]
    pub requires: Vec<WorkPath>,
    /// Policy in force; none = the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<BlobRef>,
    /// Walls around its commands.
    #[serde(default)]
    pub sandbox: SandboxLayers,
    /// The worker that started it.
    pub worker: IncarnationId,
}

/// A run stands on another's history up to a turn's end. First event of its stream; its previous
/// hash is the parent's hash there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// This run.
    pub run: RunId,
    /// Its task: the parent's own for a resume, a new one for a fork.
    pub task: TaskId,
    /// The run whose history it shares.
    pub parent: RunId,
    /// Last event of the parent that is shared.
    pub seq: Seq,
    /// That event's hash.
    pub hash: EventHash,
    /// The turn whose end that is.
    pub turn: Turn,
    /// Why.
    pub why: ForkWhy,
    /// Another engine from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// Other models from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// Words for the model, as a person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Content>,
}

/// Why a run stands on another's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForkWhy {
    /// `docket resume --turn N` where later turns exist, or where the run had ended.
    Resume,
    /// `docket fork`.
    Fork,
    /// `docket reject`: goes on with the comment.
    Rejected,
}

/// Another process goes on with the run after a crash, a drain or a lost worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecovered {
    /// Who goes on.
    pub worker: IncarnationId,
    /// Walls around its commands now.
    #[serde(default)]
    pub sandbox: SandboxLayers,
    /// Hash of the tree that the workspace was restored to.
    pub tree: TreeHash,
    /// Calls whose outcome is unknown and that are not run again.
    #[serde(default)]
    pub unknown: Vec<CallId>,
    /// Folders left out of snapshots that the new workspace lacks.
    #[serde(default)]
    pub missing: Vec<WorkPath>,
}

/// A command that makes a fresh workspace ready was run: at the start, and wherever the workspace is
/// made again. What it leaves in ignored folders is in no snapshot, which is why it is run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetupFinished {
    /// The shell line.
    pub command: String,
    /// Its exit status; `None` where a signal or the time limit ended it.
    pub exit: Option<i32>,
    /// Its output, cut.
    pub content: Content,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// What the run is about now (A17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reads, lists, searches.
    Exploring,
    /// Says what it intends.
    Planning,
    /// Makes new files.
    Creating,
    /// Changes files.
    Editing,
    /// Runs tests or commands.
    Testing,
    /// Changes files after an error.
    Fixing,
    /// The final gates run.
    Verifying,
}

impl Phase {
    /// The name that people see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exploring => "exploring",
            Self::Planning => "planning",
            Self::Creating => "creating",
            Self::Editing => "editing",
            Self::Testing => "testing",
            Self::Fixing => "fixing",
            Self::Verifying => "verifying",
        }
    }
}

/// The phase changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseChanged {
    /// The phase from here on.
    pub phase: Phase,
}

/// What a model call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The next decision of the agent.
    Decide,
    /// A summary that replaces old history.
    Compact,
    /// A plan.
    Plan,
    /// A judgement of work done.
    Review,
}

/// Intent: a model is about to be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// What it is for.
    pub purpose: Purpose,
    /// Who is asked.
    pub model: ModelRef,
    /// Which attempt at this decision, from 1.
    pub attempt: u32,
    /// BLAKE3 of the canonical decision that asks for it.
    pub decision: DecisionHash,
    /// BLAKE3 of the request's body, without headers.
    pub request: DecisionHash,
    /// Size of the body in bytes.
    pub request_bytes: u64,
    /// Words of the runtime that the request adds for the model: why it is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// Most that the call can cost, in nano-dollars: what a budget reserves.
    #[serde(default)]
    pub worst_case_nusd: u64,
}

/// The model answered, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelAnswered {
    /// The call.
    pub call: CallId,
    /// Text, reasoning and tool calls, in order.
    pub parts: Vec<Part>,
    /// Why it stopped.
    pub stop: StopReason,
    /// Tokens.
    pub usage: Usage,
    /// Cost in nano-dollars by the pinned prices.
    #[serde(default)]
    pub cost_nusd: u64,
    /// From the request's first byte to the answer's first, in milliseconds.
    #[serde(default)]
    pub first_byte_ms: u64,
    /// From the request's first byte to the answer's last, in milliseconds.
    #[serde(default)]
    pub total_ms: u64,
}

/// The model call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// Kind of failure: `rate_limited`, `overloaded`, `cut_stream` …
    pub error: String,
    /// One line for a person, with the remedy.
    pub message: String,
    /// How long the driver waits before another attempt (the provider's word, or backoff with
    /// jitter, drawn once and recorded); `None` = another attempt is pointless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
}

/// What policy says of a call, and which rule said it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// It is run.
    Allow {
        /// The rule.
        rule: String,
    },
    /// It is refused, and the model is told why.
    Deny {
        /// The rule.
        rule: String,
        /// The reason, for the model.
        reason: String,
    },
    /// A person is asked.
    Ask {
        /// The rule.
        rule: String,
        /// What is asked.
        question: String,
    },
}

/// Intent: a tool is about to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequested {
    /// The call; its arguments stand in the `ModelAnswered` that made it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What recovery may do if no result follows.
    pub class: RecoveryClass,
    /// What policy says.
    pub policy: Verdict,
    /// Labels of a parsed command: `network`, `git`, `deletes` …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The decision that asks for it.
    pub decision: DecisionHash,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It did what was asked.
    Ok,
    /// It failed, and the model is told how.
    Error,
    /// Policy, or a rule of the tool, refused it; nothing was done.
    Refused,
    /// A crash came between intent and result, and it must not be run again.
    Unknown,
}

/// A tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFinished {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub status: ToolStatus,
    /// What the model reads.
    pub content: Content,
    /// The whole output where `content` is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// What decisions need.
    #[serde(default)]
    pub facts: ToolFacts,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// The workspace as it is after the results before this event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotTaken {
    /// Paths of the work tree that changed since the snapshot before.
    pub changes: Vec<PathChange>,
    /// Paths under `.git/` that changed: what the model did with git. Not part of the tree hash,
    /// for commits carry clocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_changes: Vec<PathChange>,
    /// Hash of the whole work tree.
    pub tree: TreeHash,
    /// Paths newly left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// Intent: a final check is about to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// The check.
    pub gate: GateSpec,
    /// The decision that asks for it.
    pub decision: DecisionHash,
}

/// A final check ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateFinished {
    /// The call.
    pub call: CallId,
    /// Exit status 0 within the time limit.
    pub passed: bool,
    /// What the model reads if it failed.
    pub content: Content,
    /// The whole output where `content` is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// What decisions need.
    #[serde(default)]
    pub facts: ToolFacts,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// A person tells the run something (`docket tell`). Reaches the model at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// The words.
    pub text: Content,
    /// Who.
    pub by: String,
}

/// Somebody wants the run to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelRequested {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Somebody wants the run to rest at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseRequested {
    /// Who.
    pub by: String,
}

/// A pause ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unpaused {
    /// Who.
    pub by: String,
}

/// Another policy is in force from the next decision on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChanged {
    /// The policy.
    pub policy: BlobRef,
}

/// Limits that only a clock or the coordinator can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Wall time of the run.
    Time,
    /// Tokens.
    Tokens,
    /// Money.
    Money,
}

/// A limit was reached: told as an event, so that engines need no clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    /// Which.
    pub which: Limit,
}

/// The run rests; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// The decision.
    pub decision: DecisionHash,
}

/// The run cannot go on without a person; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunBlocked {
    /// What is asked.
    pub question: Content,
    /// What led to it.
    pub why: BlockedWhy,
    /// The decision.
    pub decision: DecisionHash,
}

/// What led to a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockedWhy {
    /// The model said so.
    Model,
    /// Policy asks a person.
    Policy,
    /// Failures passed a threshold.
    Escalated,
    /// It waits for a child run.
    Child,
}

/// A person answered a blocker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerAnswered {
    /// The answer.
    pub text: Content,
    /// Who.
    pub by: String,
}

/// A child task was submitted on behalf of this run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delegated {
    /// The call that delegates.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
}

/// A child task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildAnswered {
    /// The call that delegated.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
    /// Its answer, as the model reads it.
    pub content: Content,
    /// It failed.
    pub is_error: bool,
}

/// Old history was replaced by shorter text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compacted {
    /// Messages replaced, counted from the first.
    pub messages: u32,
    /// What stands in their place.
    pub summary: Content,
}

/// A person changed the workspace (`docket shell`); a `SnapshotTaken` follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceEdited {
    /// Who.
    pub by: String,
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The turn cap.
    TurnLimit,
    /// A limit of time, tokens or money.
    Limit,
    /// The gates still fail after the last correction.
    Gates,
    /// The model cannot be reached, or refuses.
    Model,
    /// The model kept answering with nothing.
    EmptyAnswers,
    /// The workspace or the sandbox could not be made.
    Environment,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum RunOutcome {
    /// The work is done and its gates passed.
    Succeeded,
    /// It is not.
    Failed {
        /// Why.
        why: FailureKind,
        /// One line for a person.
        message: String,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// Another run of the task took its place.
    Superseded,
}

impl RunOutcome {
    /// The name that people see.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
        }
    }
}

/// The run is over. Nothing follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// How.
    pub result: RunOutcome,
    /// The model's last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Content>,
    /// Hash of the final tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeHash>,
    /// The decision; none where the coordinator ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionHash>,
}
