//! Bodies about queues, and about why a task does not run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::tasks::task::StateCount;
use crate::{
    ids::{QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::TaskState,
};

/// `GET /v1/queues`: every queue that has tasks which have not ended, or settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// By name.
    pub queues: Vec<QueueView>,
}

/// A queue as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// What is set for it.
    pub settings: QueueSettings,
    /// Its tasks that have not ended, by state.
    pub tasks: Vec<StateCount>,
    /// Since when the one of them that waits longest for a worker could have been leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_available_at: Option<Timestamp>,
    /// Since when the one that runs longest has been leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_leased_at: Option<Timestamp>,
}

impl QueueView {
    /// How many of its tasks are in a state.
    pub fn count_in_state(&self, state: TaskState) -> u64 {
        self.tasks.iter().find(|one| one.state == state).map_or(0, |one| one.count)
    }
}

/// `POST /v1/queues/{name}`: what is named is set, the rest stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetQueueRequest {
    /// None of its tasks is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// At most so many of its tasks run at a time; 0 = as many as there are workers for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

/// `POST /v1/workers/{incarnation}/drain`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainWorkerRequest {}

/// `GET /v1/tasks/{id}/why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    /// The task.
    pub task: TaskId,
    /// Its state.
    pub state: TaskState,
    /// What keeps it.
    pub kind: WhyKind,
    /// The same in one line, with what helps.
    pub text: String,
    /// Tasks that it is about: those it waits for, or that run in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
}

/// What keeps a task from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyKind {
    /// Nothing: it runs.
    Runs,
    /// It has its worker, and waits for a limit on its model's provider.
    ProviderLimit,
    /// It has ended.
    Ended,
    /// It waits for other tasks.
    Dependencies,
    /// It waits for its time.
    Schedule,
    /// A run failed, and its backoff is not over.
    Backoff,
    /// It waits for a person, a child, a provider, a budget, or the end of a pause.
    Blocked,
    /// Its queue is paused.
    QueuePaused,
    /// As many tasks of its queue run as may.
    QueueFull,
    /// Its batch has used up what it may.
    Budget,
    /// As many tasks of its concurrency key run as may.
    KeyFull,
    /// There is no worker.
    NoWorker,
    /// No worker that is there takes tasks like it.
    NoneServes,
    /// A worker that would take it cannot, for a fault of its own, and there is no other.
    WorkerFault,
    /// The workers that take tasks like it have no room.
    NoRoom,
    /// Nothing: a worker is about to take it.
    Next,
}

/// Which load is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueLoadQuery {
    /// The labels of the workers that are scaled, as `gpu=a100,zone=b`: tasks that want others are not theirs. Left out,
    /// a task counts where some worker that was heard of within a week has its labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
}

/// `GET /v1/queues/{name}/load`: for autoscalers. A queue that nobody knows has a load of 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueLoad {
    /// How many of its tasks run, or would if there were workers enough: what to scale by. What runs counts, so that a
    /// busy worker is never one too many. What cannot run does not: in a paused queue, above the queue's limit or a
    /// key's, of a batch whose budget is used up, with labels that nobody has.
    pub wanted: u64,
    /// Its tasks that run.
    pub running: u64,
    /// Its tasks that could be leased.
    pub available: u64,
    /// For how long the one of them that waits longest has, in seconds.
    pub oldest_available_s: u64,
}
