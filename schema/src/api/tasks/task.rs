//! Request and response bodies for tasks and runs, and for the coordinator's status.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    fault::WorkerFault,
    lease::{CAPACITY_DRAINING, WorkerCapacity},
};
use crate::{
    event::Head,
    ids::{IncarnationId, QueueName, RunId, Seq, StreamId, TaskId, Timestamp},
    policy::Policy,
    run::EngineRef,
    system::ProviderLimits,
    task::{LabelSet, TaskRecord, TaskSpec, TaskState},
};

/// `POST /v1/tasks`: submits tasks, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The tasks, at most [`SUBMIT_TASKS_MAX`]. Blobs they refer to must be stored first.
    pub tasks: Vec<TaskSpec>,
    /// Ids chosen by the caller so that a repeated request is accepted once; the n-th id belongs to the n-th
    /// task. If absent, the coordinator generates them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<TaskId>>,
}

/// Result of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitResponse {
    /// One entry per task, in order.
    pub tasks: Vec<SubmittedTask>,
}

/// Result for one submitted task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedTask {
    /// The task's id; for a duplicate, the id of the existing task.
    pub id: TaskId,
    /// Whether an unfinished task with this deduplication key already existed.
    pub duplicate: bool,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// The `before` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
    /// Tasks of the page whose run waits for its model provider's rate limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<ProviderWait>,
}

/// A leased run that waits for its model provider's rate limit (`docket limit`). Held in the memory of the
/// coordinator that the run asked for a permit; other coordinators do not report it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderWait {
    /// The run's task.
    pub task: TaskId,
    /// The provider.
    pub provider: String,
    /// The provider's limits.
    pub limits: ProviderLimits,
    /// Since when it waits.
    pub since: Timestamp,
    /// Earliest time at which it continues; absent if it waits for another call to finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl fmt::Display for ProviderWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it waits for the rate limit of {}, {}", self.provider, self.limits)
    }
}

/// `GET /v1/tasks/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// The task.
    pub task: TaskRecord,
    /// The task's runs, oldest first.
    pub runs: Vec<RunView>,
    /// If the task is leased: when the lease expires without a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    /// If its run waits for its model provider's rate limit: that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<ProviderWait>,
}

/// `GET /v1/runs/{id}`: a run as stored in the projection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Its task.
    pub task: TaskId,
    /// Head of its own stream.
    pub head: Head,
    /// The run whose history it shares, and where the shared history ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// `running`, `blocked`, `paused`, `succeeded`, `failed`, `cancelled`, `superseded`, or `waiting` if it
    /// has not ended and no worker has it.
    pub status: String,
    /// Turn of the last event.
    pub turn: u32,
    /// When its first event was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Where a run's shared history ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParentRef {
    /// The parent.
    pub run: RunId,
    /// The last shared event.
    pub seq: Seq,
}

/// `POST /v1/tasks/{id}/cancel`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelTaskRequest {
    /// The reason to record.
    pub reason: String,
}

/// `POST /v1/tasks/{id}/retry`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRequest {
    /// The reason to record.
    pub reason: String,
    /// Starts the task regardless of its dependencies; if false, it waits for those that are not completed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_dependencies: bool,
}

/// `POST /v1/tasks/{id}/pause`, `…/unpause`: the body is an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {}

/// `POST /v1/tasks/{id}/answer`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerRequest {
    /// The answer. At most [`TELL_BYTES_MAX`](super::TELL_BYTES_MAX) bytes; may be empty if the run was
    /// stopped by a problem with the model's provider that is now fixed.
    pub text: String,
}

/// `POST /v1/runs/{id}/tell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TellRequest {
    /// The message. At most [`TELL_BYTES_MAX`] bytes.
    pub text: String,
}

/// `POST /v1/runs/{id}/policy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// The policy that replaces the task's policy in this run.
    pub policy: Policy,
}

/// Response of tell and policy requests: the message or policy is recorded in the run's log, and its worker
/// reads it at its next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TellResponse {
    /// Head of the run's stream after the request.
    pub head: Head,
}

/// `GET /v1/resolve/{prefix}`: ids that start with these digits or, if there are none, end with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolveResponse {
    /// Matching tasks.
    pub tasks: Vec<TaskId>,
    /// Matching runs.
    pub runs: Vec<RunId>,
    /// Archived streams of matching tasks and runs, if no id that is not archived matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archived: Vec<StreamId>,
}

/// `GET /v1/status`: the coordinator's version, tasks and workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoordinatorStatus {
    /// Version of the build.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// Number of tasks by state.
    pub tasks: Vec<StateCount>,
    /// Workers that hold leases or were seen within the last three lease durations.
    pub workers: Vec<WorkerView>,
}

/// Number of tasks in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCount {
    /// The state.
    pub state: TaskState,
    /// Number of tasks.
    pub count: u64,
}

/// A worker as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerView {
    /// The worker's incarnation.
    pub incarnation: IncarnationId,
    /// The worker's name.
    pub name: String,
    /// Number of leases it holds.
    pub held: u32,
    /// When it was last seen.
    pub seen_at: Timestamp,
    /// What it serves; none if it never requested work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<WorkerCapabilities>,
    /// Its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// Whether it was asked to drain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

impl WorkerView {
    /// Whether it is draining, either because it was asked to or because it said so. A draining worker
    /// without leases has exited or is about to.
    pub fn is_draining(&self) -> bool {
        self.draining || self.room.as_ref().and_then(|room| room.full.as_deref()) == Some(CAPACITY_DRAINING)
    }

    /// Whether the worker is still running. A draining worker without leases has exited, even if it was seen
    /// recently.
    pub fn is_present(&self) -> bool {
        self.held > 0 || !self.is_draining()
    }

    /// Returns why it takes no more tasks at the moment; none if it does.
    pub fn full_reason(&self) -> Option<String> {
        if self.draining {
            return Some(CAPACITY_DRAINING.to_owned());
        }
        let room = self.room.as_ref()?;
        // The worker may have received leases since its last report.
        let taken = || match room.slots {
            slots if self.held < slots => None,
            slots => Some(WorkerCapacity::describe_full(slots)),
        };
        room.full.clone().or_else(taken)
    }
}

/// What a worker serves, as given in its last request for work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkerCapabilities {
    /// Queues; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueName>,
    /// Engines and versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineRef>,
    /// Labels.
    #[serde(skip_serializing_if = "LabelSet::is_empty")]
    pub labels: LabelSet,
    /// The sandbox layers around the commands of its runs; empty if not reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Faults that prevent it from running some tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<WorkerFault>,
}
