//! Bodies about runs that stand on another's history: resume, fork, the tree that they make.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::{ParentRef, RunView};
use crate::{
    content::BlobRef,
    ids::{BlobHash, RunId, TaskId, TreeHash},
    message::ModelRef,
    run::{EngineRef, ForkReason, RunModels, SnapshotTaken},
};

/// What a person changed in the workspace between a turn's end and the run that goes on from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceEdit {
    /// The tree that was changed: must be that of the turn, or the edit was made on something else.
    pub before: TreeHash,
    /// The changes, as snapshots that follow one another; at most [`EDIT_SNAPSHOTS_MAX`].
    ///
    /// [`EDIT_SNAPSHOTS_MAX`]: super::EDIT_SNAPSHOTS_MAX
    pub snapshots: Vec<SnapshotTaken>,
    /// Blobs that were stored for them before: checked to exist, at most [`BLOB_HASHES_MAX`]. Contents
    /// that the task's base holds are not among them.
    ///
    /// [`BLOB_HASHES_MAX`]: super::BLOB_HASHES_MAX
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<BlobHash>,
}

/// `POST /v1/runs/{id}/resume`: goes on from a turn's end, as a new run of the same task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// The last turn that is kept; absent = the last one that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// What a person changed there before it goes on. `turn` must be given with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<WorkspaceEdit>,
    /// Words for the model, as a person's; at most [`TELL_BYTES_MAX`] bytes.
    ///
    /// [`TELL_BYTES_MAX`]: super::TELL_BYTES_MAX
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The run that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeResponse {
    /// Its task.
    pub task: TaskId,
    /// The new run.
    pub run: RunId,
    /// Where the history it shares ends. May name an ancestor of the run that was asked for.
    pub parent: ParentRef,
    /// The turn whose end that is.
    pub turn: u32,
}

/// A task that a fork makes, and its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkSibling {
    /// The task.
    pub task: TaskId,
    /// The run, whose stream begins with `Forked`.
    pub run: RunId,
}

/// `POST /v1/runs/{id}/fork`: new tasks that go on from a turn's end. The run itself is not touched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The last turn that is kept; absent = the last one that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// What is made: 1 to [`FORK_SIBLINGS_MAX`]. The caller gives the ids, so that the same request
    /// sent again makes nothing new and is answered as the first time.
    ///
    /// [`FORK_SIBLINGS_MAX`]: super::FORK_SIBLINGS_MAX
    pub siblings: Vec<ForkSibling>,
    /// Another engine from here on. The caller knows the versions there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// Other models from here on, with their terms: the caller has a table of prices, a coordinator none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<RunModels>,
    /// For `scripted` models: the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobRef>,
    /// Words for the model, as a person's; at most [`TELL_BYTES_MAX`] bytes.
    ///
    /// [`TELL_BYTES_MAX`]: super::TELL_BYTES_MAX
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What a person changed there before they go on. `turn` must be given with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<WorkspaceEdit>,
}

/// The tasks that a fork made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkResponse {
    /// In the order of the request.
    pub siblings: Vec<ForkSibling>,
    /// Where the history they share ends. May name an ancestor of the run that was asked for.
    pub parent: ParentRef,
    /// The turn whose end that is.
    pub turn: u32,
}

/// `GET /v1/runs/{id}/lineage`: the whole tree of runs that share history with this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineageView {
    /// The runs, the root first, each after its parent, siblings in the order they began.
    pub runs: Vec<LineageRun>,
    /// There are more than [`LINEAGE_VIEW_RUNS_MAX`]; the rest is left out.
    ///
    /// [`LINEAGE_VIEW_RUNS_MAX`]: super::LINEAGE_VIEW_RUNS_MAX
    pub more: bool,
}

/// A run in its tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineageRun {
    /// The run.
    pub run: RunView,
    /// Why it stands on its parent; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<ForkReason>,
    /// The last turn it shares with its parent; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_turn: Option<u32>,
    /// Its model at the start; absent where it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Its engine at the start; absent where it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
}
