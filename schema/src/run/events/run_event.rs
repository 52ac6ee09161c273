//! The events of a run's stream. Each is a fact; what an engine concludes from them is not here.
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
    pub models: RunModels,
    /// Settings in force.
    pub settings: RunSettings,
    /// Prompt texts and tool schemas.
    pub prompts: RunPrompts,
    /// The tree it starts from.
    pub base: WorkspaceBase,
    /// Checks that must pass at the end.
    #[serde(default)]
    pub gates: Vec<GateSpec>,
    /// The shell line that runs tests, where the task or the project's `docket.toml` says one; `{path}` in
    /// it stands for the quoted test path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Roles of its engine; none where it has one conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleSpec>,
    /// Tools of the worker's own servers that its model has beside the set's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<ExternalTool>,
    /// Servers of the worker's settings that did not answer when the run began and that are not required: the run
    /// has none of their tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers_left_out: Vec<UnavailableServer>,
    /// Linters of the project's languages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linters: Vec<LinterSpec>,
    /// Paths that must exist at the end.
    #[serde(default)]
    pub requires: Vec<WorkspacePath>,
    /// Policy in force; none = the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<BlobRef>,
    /// Policies in force, its worker's and its task's: of what they say the strictest holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    /// Walls around its commands.
    #[serde(default)]
    pub sandbox: SandboxLayers,
    /// The worker that started it.
    pub worker: IncarnationId,
}

impl RunStarted {
    /// The server's tool of this name, where the run has it.
    pub fn external_tool(&self, name: &str) -> Option<&ExternalTool> {
        self.external.iter().find(|tool| tool.name == name)
    }
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
    pub why: ForkReason,
    /// Another engine from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// Other models from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<RunModels>,
    /// Words for the model, as a person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Content>,
}

/// Why a run stands on another's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForkReason {
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
    pub missing: Vec<WorkspacePath>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Reads, lists, searches.
    #[default]
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

impl RunPhase {
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
    pub phase: RunPhase,
}
