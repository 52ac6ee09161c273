//! Delegation: a task that a run gave away, and what it knows of that run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    content::BlobRef,
    ids::{RunId, TaskId, TreeHash},
    message::CallId,
};

/// Who gave a task away, and from where it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelegatedBy {
    /// The parent: it waits.
    pub task: TaskId,
    /// Its run.
    pub run: RunId,
    /// The call that delegates.
    pub call: CallId,
    /// What it changes goes back into the parent's workspace; else it is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// Hash of the tree it starts from: the parent's at the call.
    pub tree: TreeHash,
    /// How that tree differs from the base: a blob with [`SnapshotTaken`](crate::run::SnapshotTaken)s as JSON. None =
    /// it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<BlobRef>,
}

/// The run in hand gave work away. The task waits for it, whatever else it does meanwhile; a `TaskDependencyEnded`
/// follows once that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDelegated {
    /// The run.
    pub run: RunId,
    /// The call that delegates.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
}

/// Who cancels the children of a run that goes on without them.
pub const BY_PARENT: &str = "parent";

/// The child that a call of a run makes: always the same, so that a request sent again makes no second one. It has
/// the run's time, and so stands in lists beside it.
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
