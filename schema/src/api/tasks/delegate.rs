//! Request and response bodies of delegation: a run gives work to a child task and queries its result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task::TaskView;
use crate::api::log::BlobUpload;
use crate::{
    content::{BlobRef, WorkspacePath},
    event::Envelope,
    ids::{Epoch, Seq, TaskId, TreeHash},
    message::{CallId, ModelRef},
    task::SettingsPatch,
};

/// `POST /v1/runs/{id}/delegate`: records the run's `Delegated` and the child's `TaskSubmitted` in one
/// transaction. The child inherits everything not given here: base, queue, batch, key, priority, policy,
/// worker labels. Repeating the request does not create a second child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegateRequest {
    /// The fencing token.
    pub epoch: Epoch,
    /// The last event of its own stream that the run knows; the response contains the events after it.
    pub after: Seq,
    /// The tool call that delegates.
    pub call: CallId,
    /// The child's title.
    pub title: String,
    /// The child's task text for its model.
    pub text: String,
    /// Whether the child's changes are merged into the parent's workspace.
    #[serde(default)]
    pub writes: bool,
    /// The shell command that tests the child's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Paths that must exist when the child ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<WorkspacePath>,
    /// Tools that the child may not call, in addition to its parent's policy, because a role may not gain
    /// tools by delegating. Each is a pattern as in a rule's `tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_tools: Vec<String>,
    /// Engine, if different from the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Model, if different from the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Settings; omitted ones are those of the parent's task.
    #[serde(default)]
    pub settings: SettingsPatch,
    /// Hash of the tree that the child starts from.
    pub tree: TreeHash,
    /// How that tree differs from the base; none if it does not. See
    /// [`DelegatedBy`](crate::task::DelegatedBy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<BlobRef>,
    /// That blob, if it is not stored yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobUpload>,
}

/// The child, and the run's events since `after`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelegateResponse {
    /// The child's task id.
    pub child: TaskId,
    /// Events of the run after the last one it knew, including `Delegated`.
    pub events: Vec<Envelope>,
}

/// `GET /v1/runs/{id}/children`: the tasks that a run delegated, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildList {
    /// The tasks with their runs.
    pub children: Vec<ChildView>,
}

/// A delegated task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildView {
    /// The call that delegated it.
    pub call: CallId,
    /// The task and its runs.
    pub view: TaskView,
}
