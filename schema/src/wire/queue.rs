//! Bodies about queues, and about why a task does not run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StateCount;
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
    /// How many of its tasks run, or would if there were workers enough: what to scale workers by. What runs counts, so
    /// that a busy worker is never one too many; what is paused, or above the queue's limit, does not.
    pub fn wanted(&self) -> u64 {
        let running = self.count(TaskState::Running);
        if self.settings.paused {
            return running;
        }
        let all = running.saturating_add(self.count(TaskState::Available));
        self.settings.running_max.map_or(all, |max| all.min(running.max(u64::from(max))))
    }

    /// How many of its tasks are in a state.
    pub fn count(&self, state: TaskState) -> u64 {
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
    /// As many tasks of its concurrency key run as may.
    KeyFull,
    /// There is no worker.
    NoWorker,
    /// No worker that is there takes tasks like it.
    NoneServes,
    /// The workers that take tasks like it have no room.
    NoRoom,
    /// Nothing: a worker is about to take it.
    Next,
}

/// `GET /v1/queues/{name}/load`: for autoscalers. A queue that nobody knows has a load of 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueLoad {
    /// See [`QueueView::wanted`].
    pub wanted: u64,
    /// Its tasks that run.
    pub running: u64,
    /// Its tasks that could be leased.
    pub available: u64,
    /// For how long the one of them that waits longest has, in seconds.
    pub oldest_available_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_always_wanted_and_what_cannot_run_never() {
        let of = |running, available, paused, running_max| {
            let count = |state, count| StateCount { state, count };
            let tasks = vec![
                count(TaskState::Running, running),
                count(TaskState::Available, available),
                count(TaskState::Blocked, 9),
            ];
            let settings = QueueSettings { paused, running_max };
            let name = QueueName::default();
            QueueView { name, settings, tasks, oldest_available_at: None, oldest_leased_at: None }.wanted()
        };
        assert_eq!(of(0, 0, false, None), 0);
        assert_eq!(of(2, 3, false, None), 5);
        assert_eq!(of(2, 3, true, None), 2);
        assert_eq!(of(2, 3, false, Some(4)), 4);
        assert_eq!(of(2, 3, false, Some(1)), 2, "the limit came later than what runs");
    }
}
