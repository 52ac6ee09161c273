//! Request and response bodies for runs that continue another run's history: resume, fork and lineage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::{ParentRef, RunView};
use crate::{
    content::BlobRef,
    ids::{BlobHash, RunId, TaskId, TreeHash},
    message::ModelRef,
    run::{EngineRef, ForkReason, RunModels, SnapshotTaken},
};

/// A person's changes to the workspace between the end of a turn and the run that continues from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceEdit {
    /// The tree that was edited; must be the tree of the turn.
    pub before: TreeHash,
    /// The changes as consecutive snapshots; at most [`EDIT_SNAPSHOTS_MAX`].
    ///
    /// [`EDIT_SNAPSHOTS_MAX`]: super::EDIT_SNAPSHOTS_MAX
    pub snapshots: Vec<SnapshotTaken>,
    /// Previously stored blobs of these snapshots, without contents that the task's base contains. The
    /// coordinator checks that they exist; at most [`BLOB_HASHES_MAX`].
    ///
    /// [`BLOB_HASHES_MAX`]: super::BLOB_HASHES_MAX
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<BlobHash>,
}

/// `POST /v1/runs/{id}/resume`: continues from the end of a turn in a new run of the same task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// The last turn to keep; if absent, the last one that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// A person's changes to the workspace at that point. Requires `turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<WorkspaceEdit>,
    /// A message to the model; at most [`TELL_BYTES_MAX`] bytes.
    ///
    /// [`TELL_BYTES_MAX`]: super::TELL_BYTES_MAX
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The run that continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeResponse {
    /// The task's id.
    pub task: TaskId,
    /// The new run.
    pub run: RunId,
    /// Where the shared history ends. May refer to an ancestor of the requested run.
    pub parent: ParentRef,
    /// The turn that ends there.
    pub turn: u32,
}

/// A task created by a fork, and its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkSibling {
    /// The task's id.
    pub task: TaskId,
    /// The run, whose stream begins with `Forked`.
    pub run: RunId,
}

/// `POST /v1/runs/{id}/fork`: creates new tasks that continue from the end of a turn. The run itself is not
/// changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The last turn to keep; if absent, the last one that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The tasks to create: 1 to [`FORK_SIBLINGS_MAX`]. The caller chooses the ids, so that repeating the
    /// request creates nothing new and returns the same response.
    ///
    /// [`FORK_SIBLINGS_MAX`]: super::FORK_SIBLINGS_MAX
    pub siblings: Vec<ForkSibling>,
    /// Another engine for the continuation. The caller chooses an available version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// Other models for the continuation, with their prices: the caller has a price table, the coordinator
    /// has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<RunModels>,
    /// The script, for `scripted` models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobRef>,
    /// A message to the model; at most [`TELL_BYTES_MAX`] bytes.
    ///
    /// [`TELL_BYTES_MAX`]: super::TELL_BYTES_MAX
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// A person's changes to the workspace at that point. Requires `turn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<WorkspaceEdit>,
}

/// The tasks created by a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkResponse {
    /// The tasks, in request order.
    pub siblings: Vec<ForkSibling>,
    /// Where the shared history ends. May refer to an ancestor of the requested run.
    pub parent: ParentRef,
    /// The turn that ends there.
    pub turn: u32,
}

/// `GET /v1/runs/{id}/lineage`: all runs that share history with this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineageView {
    /// The runs: the root first, each after its parent, siblings in start order.
    pub runs: Vec<LineageRun>,
    /// Whether there are more than [`LINEAGE_VIEW_RUNS_MAX`] runs; the rest is omitted.
    ///
    /// [`LINEAGE_VIEW_RUNS_MAX`]: super::LINEAGE_VIEW_RUNS_MAX
    pub more: bool,
}

/// A run in a lineage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineageRun {
    /// The run.
    pub run: RunView,
    /// Why it continues its parent; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<ForkReason>,
    /// The last turn shared with its parent; absent for a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_turn: Option<u32>,
    /// Its model at the start; absent if it has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Its engine at the start; absent if it has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
}
