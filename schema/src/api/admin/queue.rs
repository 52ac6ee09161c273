//! Request and response bodies for queues, and for explaining why a task does not run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::tasks::task::StateCount;
use crate::{
    ids::{QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::TaskState,
};

/// `GET /v1/queues`: all queues that have settings or tasks that have not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// The queues, by name.
    pub queues: Vec<QueueView>,
}

/// A queue's settings and task counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    /// The queue's name.
    pub name: QueueName,
    /// The queue's settings.
    pub settings: QueueSettings,
    /// Number of tasks that have not ended, by state.
    pub tasks: Vec<StateCount>,
    /// Since when the task that has waited longest for a worker has been available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_available_at: Option<Timestamp>,
    /// Since when the task that has run longest has been leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_leased_at: Option<Timestamp>,
}

impl QueueView {
    /// Returns the number of tasks in a state.
    pub fn count_in_state(&self, state: TaskState) -> u64 {
        self.tasks.iter().find(|one| one.state == state).map_or(0, |one| one.count)
    }
}

/// `POST /v1/queues/{name}`: changes the given settings and keeps the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetQueueRequest {
    /// If true, no task of the queue is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Maximum number of tasks that run at a time; 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

/// `POST /v1/workers/{incarnation}/drain`: the body is an empty object.
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
    /// Why the task does not run.
    pub kind: WhyKind,
    /// The same as one line of text, with what to do about it.
    pub text: String,
    /// Related tasks: those it depends on, or those that run instead of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
}

/// Why a task does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyKind {
    /// The task is running.
    Runs,
    /// The task is leased but waits for its model provider's rate limit.
    ProviderLimit,
    /// The task has ended.
    Ended,
    /// The task waits for its dependencies.
    Dependencies,
    /// The task waits for its scheduled time.
    Schedule,
    /// A run failed and the retry backoff has not passed.
    Backoff,
    /// The task waits for a person, a child task, a provider, a budget, or the end of a pause.
    Blocked,
    /// The queue is paused.
    QueuePaused,
    /// The queue's limit of running tasks is reached.
    QueueFull,
    /// The batch budget is used up.
    Budget,
    /// The limit of the task's concurrency key is reached.
    KeyFull,
    /// There is no worker.
    NoWorker,
    /// No connected worker takes tasks like this one.
    NoneServes,
    /// The only matching worker has a fault and cannot take the task.
    WorkerFault,
    /// All matching workers are at capacity.
    NoRoom,
    /// Nothing prevents it: a worker will take the task next.
    Next,
}

/// Parameters of the queue load.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueLoadQuery {
    /// Labels of the scaled workers, such as `gpu=a100,zone=b`; tasks that require other labels are not
    /// counted. If omitted, a task counts if some worker seen within the last week has its labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
}

/// `GET /v1/queues/{name}/load`: the load for autoscalers. An unknown queue has a load of 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueLoad {
    /// Number of tasks that run or would run with enough workers; scale by this value. Running tasks count,
    /// so that a busy worker is never considered surplus. Tasks that cannot run do not count: those in a
    /// paused queue, above the limit of the queue or of a key, in a batch whose budget is used up, or with
    /// labels that no worker has.
    pub wanted: u64,
    /// Number of running tasks.
    pub running: u64,
    /// Number of tasks that could be leased.
    pub available: u64,
    /// How long the oldest available task has waited, in seconds.
    pub oldest_available_s: u64,
}
