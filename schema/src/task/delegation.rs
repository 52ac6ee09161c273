//! Delegation: the relation of a child task to the run that delegated it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    content::BlobRef,
    ids::{RunId, TaskId, TreeHash},
    message::CallId,
};

/// The run that delegated a task, and the tree it starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelegatedBy {
    /// The parent task, which waits for it.
    pub task: TaskId,
    /// The parent's run.
    pub run: RunId,
    /// The delegating call.
    pub call: CallId,
    /// Whether its changes are merged into the parent's workspace; otherwise they are discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// Hash of the tree it starts from: the parent's tree at the time of the call.
    pub tree: TreeHash,
    /// How that tree differs from the base: a blob with [`SnapshotTaken`](crate::run::SnapshotTaken)s as
    /// JSON. None if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<BlobRef>,
}

/// The current run delegated work. The task waits for the child; a `TaskDependencyEnded` follows when the
/// child has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDelegated {
    /// The run.
    pub run: RunId,
    /// The delegating call.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
}

/// The author of cancellations of children when the parent continues without them.
pub const BY_PARENT: &str = "parent";

/// Returns the id of the child that a run's call creates. It is always the same, so that a repeated request
/// does not create a second one. It has the run's timestamp, so that lists show them together.
pub fn child_task_id(run: RunId, call: &CallId) -> TaskId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"docket child\0");
    hasher.update(run.0.as_bytes());
    hasher.update(call.0.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    bytes[..6].copy_from_slice(&run.0.as_bytes()[..6]);
    // Version 7, and the variant of RFC 9562.
    bytes[6] = (bytes[6] & 0x0f) | 0x70;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    TaskId(Uuid::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Turn;

    #[test]
    fn child_id_is_unique_and_stable_per_call() {
        let run: RunId = "01920000-0000-7000-8000-000000000001".parse().expect("an id");
        let other: RunId = "01920000-0000-7000-8000-000000000002".parse().expect("an id");
        let call = |index| CallId::for_tool(Turn(3), index);
        let child = child_task_id(run, &call(0));
        assert_eq!(child, child_task_id(run, &call(0)));
        assert_ne!(child, child_task_id(run, &call(1)));
        assert_ne!(child, child_task_id(other, &call(0)));
        assert_eq!(child.0.get_version_num(), 7);
        assert_eq!(child.0.as_bytes()[..6], run.0.as_bytes()[..6]);
    }
}
