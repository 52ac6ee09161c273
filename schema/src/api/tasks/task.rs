//! Bodies about tasks, runs and the coordinator's own state.

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

/// `POST /v1/tasks`: puts tasks into the backlog, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The tasks, at most [`SUBMIT_TASKS_MAX`]. Blobs they name must be stored before.
    pub tasks: Vec<TaskSpec>,
    /// Given by the caller so that the same request sent again is accepted once: the n-th task's id
    /// is taken from here. Absent = ids are made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<TaskId>>,
}

/// What became of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitResponse {
    /// One per task, in order.
    pub tasks: Vec<SubmittedTask>,
}

/// What became of one task of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedTask {
    /// The task; for a duplicate, the one that was there.
    pub id: TaskId,
    /// A task with this deduplication key was there already, and not ended.
    pub duplicate: bool,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskRecord>,
    /// Give this as `before` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
    /// Those of them whose run waits for a limit on its model's provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<ProviderWait>,
}

/// A run that has its worker and waits: its model's provider has a limit (`docket limit`). Known to the coordinator that
/// the run asked for its moment, from memory, and told by no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderWait {
    /// Its task.
    pub task: TaskId,
    /// The provider.
    pub provider: String,
    /// What is set for it.
    pub limits: ProviderLimits,
    /// Since when.
    pub since: Timestamp,
    /// Not before this; left out where it is a call under way that must end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl fmt::Display for ProviderWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it waits for the limit of {}, {}", self.provider, self.limits)
    }
}

/// `GET /v1/tasks/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// The task.
    pub task: TaskRecord,
    /// Its runs, oldest first.
    pub runs: Vec<RunView>,
    /// While it is leased: when the lease expires if nothing is heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    /// While its run waits for a limit on its model's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<ProviderWait>,
}

/// `GET /v1/runs/{id}`: a run as the projection knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Its task.
    pub task: TaskId,
    /// Head of its own stream.
    pub head: Head,
    /// The run whose history it shares, and up to where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// `running`, `blocked`, `paused`, `succeeded`, `failed`, `cancelled`, `superseded`, or
    /// `waiting` where no worker has it and it has not ended.
    pub status: String,
    /// Turn of its last event.
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
    /// Last shared event.
    pub seq: Seq,
}

/// `POST /v1/tasks/{id}/cancel`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelTaskRequest {
    /// Why, for the log.
    pub reason: String,
}

/// `POST /v1/tasks/{id}/retry`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRequest {
    /// Why, for the log.
    pub reason: String,
    /// It begins whatever it was to come after; without, it waits again for what of that is not completed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_dependencies: bool,
}

/// `POST /v1/tasks/{id}/pause`, `…/unpause`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {}

/// `POST /v1/tasks/{id}/answer`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerRequest {
    /// The answer. At most [`TELL_BYTES_MAX`](super::TELL_BYTES_MAX); may be empty where the model's provider
    /// stopped the run: what was asked for is done.
    pub text: String,
}

/// `POST /v1/runs/{id}/tell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TellRequest {
    /// The words. At most [`TELL_BYTES_MAX`].
    pub text: String,
}

/// `POST /v1/runs/{id}/policy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// What takes the place of the task's policy, in this run.
    pub policy: Policy,
}

/// The words, or the wish, stand in the run's log; its worker finds them at its next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TellResponse {
    /// Head of the run's stream after it.
    pub head: Head,
}

/// `GET /v1/resolve/{prefix}`: ids that begin (or, where none does, end) with these digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolveResponse {
    /// Tasks.
    pub tasks: Vec<TaskId>,
    /// Runs.
    pub runs: Vec<RunId>,
    /// Streams of tasks and runs that are archived, where none of those that are here has such an id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archived: Vec<StreamId>,
}

/// `GET /v1/status`: what a coordinator is and how the queue stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoordinatorStatus {
    /// Version of the build.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// Tasks by state.
    pub tasks: Vec<StateCount>,
    /// Workers that hold leases or were heard of within three lease times.
    pub workers: Vec<WorkerView>,
}

/// How many tasks are in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCount {
    /// The state.
    pub state: TaskState,
    /// How many.
    pub count: u64,
}

/// A worker as the coordinator knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerView {
    /// Its incarnation.
    pub incarnation: IncarnationId,
    /// Its name.
    pub name: String,
    /// Leases it holds.
    pub held: u32,
    /// When it was last heard of.
    pub seen_at: Timestamp,
    /// What it takes; none where it never asked for work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<WorkerCapabilities>,
    /// How much room it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// Somebody wants it to take no more and to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

impl WorkerView {
    /// Whether it takes no more and ends: somebody wants it to, or it said so. One that holds nothing has ended, or is
    /// about to.
    pub fn is_draining(&self) -> bool {
        self.draining || self.room.as_ref().and_then(|room| room.full.as_deref()) == Some(CAPACITY_DRAINING)
    }

    /// Whether it has not ended: one that takes no more and holds nothing has, though it was heard of lately.
    pub fn is_present(&self) -> bool {
        self.held > 0 || !self.is_draining()
    }

    /// Why it takes no more tasks now; none where it would.
    pub fn full_reason(&self) -> Option<String> {
        if self.draining {
            return Some(CAPACITY_DRAINING.to_owned());
        }
        let room = self.room.as_ref()?;
        // What it said last may be older than what it got since.
        let taken = || match room.slots {
            slots if self.held < slots => None,
            slots => Some(WorkerCapacity::describe_full(slots)),
        };
        room.full.clone().or_else(taken)
    }
}

/// What a worker takes, as it said with its last request for work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkerCapabilities {
    /// Queues; empty = all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueName>,
    /// Engines and versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineRef>,
    /// Labels.
    #[serde(skip_serializing_if = "LabelSet::is_empty")]
    pub labels: LabelSet,
    /// The walls around what its runs' models do; empty where it did not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// What keeps it from carrying out some tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<WorkerFault>,
}
