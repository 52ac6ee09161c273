//! Bodies of delegation: a run gives work away to a child task, and looks what became of it.

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

/// `POST /v1/runs/{id}/delegate`: the run's `Delegated` and its child's `TaskSubmitted`, in one transaction. What is
/// not said here the child has from its parent: base, queue, batch, key, priority, policy, labels of its worker. Sent
/// again it makes no second child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegateRequest {
    /// The fencing token.
    pub epoch: Epoch,
    /// The last event that the run knows of itself: it is answered with what follows.
    pub after: Seq,
    /// The call that delegates.
    pub call: CallId,
    /// The child's title.
    pub title: String,
    /// The child's work, in words for its model.
    pub text: String,
    /// What it changes goes back into the parent's workspace.
    #[serde(default)]
    pub writes: bool,
    /// The shell line that tests its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Paths that must exist at its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<WorkspacePath>,
    /// Tools that it may not call, beside what its parent's policy says: whoever gives it away may not do what they do. A
    /// pattern of a rule's `tools` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_tools: Vec<String>,
    /// Another engine than its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Another model than its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Its settings; what is left out is as its parent's task has it.
    #[serde(default)]
    pub settings: SettingsPatch,
    /// Hash of the tree it starts from.
    pub tree: TreeHash,
    /// How that differs from the base; none = it does not. See [`DelegatedBy`](crate::task::DelegatedBy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<BlobRef>,
    /// That blob, where it is not stored yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobUpload>,
}

/// The child, and what the run's stream has since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelegateResponse {
    /// The child.
    pub child: TaskId,
    /// Events of the run after the one it knew: `Delegated` is among them.
    pub events: Vec<Envelope>,
}

/// `GET /v1/runs/{id}/children`: the tasks that a run gave away, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildList {
    /// The tasks with their runs.
    pub children: Vec<ChildView>,
}

/// A task that a run gave away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildView {
    /// The call that gave it away.
    pub call: CallId,
    /// The task and its runs.
    pub view: TaskView,
}
