//! Events of a run's stream. Each is a fact; the conclusions of an engine are separate.
//!
//! A turn takes two appends: {`ModelAnswered`, intents} and {results, `SnapshotTaken`, the next
//! `ModelRequested`}. Intents (`…Requested`) are durable before their effect starts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    compaction::Compacted,
    conclusion::Concluded,
    control_events::{
        BlockerAnswered, CancelRequested, ChildAnswered, Delegated, LimitReached, PauseRequested,
        PolicyChanged, RunBlocked, RunEnded, RunPaused, Told, Unpaused, WorkspaceEdited,
    },
    role_events::{RoleBegan, RolesPinned},
    turn_events::{
        BaseChecked, GateFinished, GateRequested, ModelAnswered, ModelFailed, ModelRequested, SnapshotTaken,
        ToolFinished, ToolRequested,
    },
};
use crate::run::config::{
    external_tool::{ExternalTool, UnavailableServer},
    role_spec::RoleSpec,
    run_config::{EngineRef, GateSpec, LinterSpec, RunModels, RunPrompts, RunSettings, SandboxLayers},
};
use crate::{
    content::{BlobRef, Content, WorkspacePath},
    event::typed_events,
    ids::{EventHash, IncarnationId, RunId, Seq, TaskId, TreeHash, Turn},
    message::CallId,
    policy::Policy,
    snapshot::WorkspaceBase,
};

typed_events! {
    /// An event of a run's stream.
    #[expect(clippy::large_enum_variant, reason = "the large ones come once a stream; boxing them costs each caller")]
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
        RolesPinned 1,
        RoleBegan 1,
        Concluded 1,
        RunEnded 1,
        BaseChecked 1,
    }
}

/// A run started. Pins everything its decisions depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunStarted {
    /// The task.
    pub task: TaskId,
    /// This run.
    pub run: RunId,
    /// Number of the task's run, starting at 1.
    pub attempt: u32,
    /// The engine and the version of its rules.
    pub engine: EngineRef,
    /// Models, limits and prices.
    pub models: RunModels,
    /// The settings in effect.
    pub settings: RunSettings,
    /// Prompt texts and tool schemas.
    pub prompts: RunPrompts,
    /// The tree it starts from.
    pub base: WorkspaceBase,
    /// Checks that must pass at the end.
    #[serde(default)]
    pub gates: Vec<GateSpec>,
    /// The shell command that runs tests, if the task or the project's `docket.toml` defines one; `{path}` is
    /// replaced with the quoted test path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Roles of its engine; empty if it has a single conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleSpec>,
    /// Tools of the worker's MCP servers, in addition to the tool set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<ExternalTool>,
    /// Optional MCP servers of the worker that did not respond when the run started: their tools are not
    /// available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers_left_out: Vec<UnavailableServer>,
    /// Linters of the project's languages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linters: Vec<LinterSpec>,
    /// Paths that must exist at the end.
    #[serde(default)]
    pub requires: Vec<WorkspacePath>,
    /// The policy in effect; none means the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<BlobRef>,
    /// The policies in effect, the worker's and the task's; the strictest verdict wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    /// The sandbox of its commands.
    #[serde(default)]
    pub sandbox: SandboxLayers,
    /// The worker that started it.
    pub worker: IncarnationId,
}

impl RunStarted {
    /// Returns the MCP tool of this name, if the run has it.
    pub fn external_tool(&self, name: &str) -> Option<&ExternalTool> {
        self.external.iter().find(|tool| tool.name == name)
    }
}

/// A run continues another run's history from the end of a turn. First event of its stream; its previous hash
/// is the hash of the parent's event there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// This run.
    pub run: RunId,
    /// Its task: the parent's for a resume, a new one for a fork.
    pub task: TaskId,
    /// The parent, whose history it shares.
    pub parent: RunId,
    /// The last shared event of the parent.
    pub seq: Seq,
    /// That event's hash.
    pub hash: EventHash,
    /// The turn that ends there.
    pub turn: Turn,
    /// The reason.
    pub why: ForkReason,
    /// Another engine for the continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// Other models for the continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<RunModels>,
    /// A message to the model from a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Content>,
}

/// Why a run continues another run's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForkReason {
    /// `docket resume --turn N` if later turns exist or the run had ended.
    Resume,
    /// `docket fork`.
    Fork,
    /// `docket reject`: continues with the comment.
    Rejected,
}

/// Another process continues the run after a crash, a drain or the loss of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecovered {
    /// The worker that continues.
    pub worker: IncarnationId,
    /// The sandbox of its commands from now on.
    #[serde(default)]
    pub sandbox: SandboxLayers,
    /// Hash of the tree to which the workspace was restored.
    pub tree: TreeHash,
    /// Calls with unknown outcome that are not repeated.
    #[serde(default)]
    pub unknown: Vec<CallId>,
    /// Folders omitted from snapshots that are missing in the new workspace.
    #[serde(default)]
    pub missing: Vec<WorkspacePath>,
}

/// A setup command ran in a fresh workspace: at the start, and whenever the workspace is recreated, because
/// its output in ignored folders is not part of snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetupFinished {
    /// The shell command.
    pub command: String,
    /// Its exit status; `None` if a signal or the time limit ended it.
    pub exit: Option<i32>,
    /// Its output, truncated.
    pub content: Content,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// The phase of a run (A17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Reads, lists, searches.
    #[default]
    Exploring,
    /// Describes its plan.
    Planning,
    /// Creates files.
    Creating,
    /// Changes files.
    Editing,
    /// Runs tests or commands.
    Testing,
    /// Changes files after an error.
    Fixing,
    /// Runs the final checks.
    Verifying,
}

impl RunPhase {
    /// Returns the name shown to people.
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
    /// The new phase.
    pub phase: RunPhase,
}
