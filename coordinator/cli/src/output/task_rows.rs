//! A task in lists: its row for programs, its state in a word, and how a person lets it go on.

use docket_schema::{
    api::ProviderWait,
    ids::{BatchId, QueueName, RunId, TaskId, Timestamp},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use serde::Serialize;

use crate::output::display::TextStyle;

/// A task as `--json` shows it: flat, and stable.
#[derive(Debug, Serialize)]
pub(crate) struct TaskRow {
    id: TaskId,
    state: TaskState,
    /// For what a blocked task waits: `person`, `child`, `paused`, `provider`, `outage`, `budget`.
    blocked_why: Option<TaskBlockedReason>,
    title: String,
    queue: QueueName,
    batch: Option<BatchId>,
    batch_name: Option<String>,
    priority: i16,
    model: String,
    engine: String,
    runs: u32,
    failures: u32,
    crashes: u32,
    epoch: u64,
    run: Option<RunId>,
    submitted_at: Timestamp,
    available_at: Timestamp,
    ended_at: Option<Timestamp>,
    message: Option<String>,
    /// Why a completed task, or one that asks a person, is unverified.
    unverified: Option<String>,
    /// The limit on its model's provider that its run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<ProviderWait>,
}

impl TaskRow {
    /// The row of a task, with the limit that its run waits for, if it is among these.
    pub(crate) fn from_task_with_waits(task: &TaskRecord, waits: &[ProviderWait]) -> Self {
        let waits = waits.iter().find(|wait| wait.task == task.id).cloned();
        Self { waits, ..Self::from_task(task) }
    }

    /// The row of a task.
    pub(crate) fn from_task(task: &TaskRecord) -> Self {
        Self {
            id: task.id,
            state: task.state,
            blocked_why: task.blocked_why,
            title: task.spec.title.clone(),
            queue: task.spec.queue.clone(),
            batch: task.spec.batch,
            batch_name: task.spec.batch_name.clone(),
            priority: task.spec.priority,
            model: task.spec.model.to_string(),
            engine: task.spec.engine.clone(),
            runs: task.runs,
            failures: task.failures,
            crashes: task.crashes,
            epoch: task.epoch.0,
            run: task.last_run,
            submitted_at: task.submitted_at,
            available_at: task.available_at,
            ended_at: task.ended_at,
            message: task.message.clone(),
            unverified: task.unverified.clone(),
            waits: None,
        }
    }
}

/// A task's state, as people read it: a paused one is blocked, but waits for nothing else; and nothing that was not
/// verified reads as if it were.
pub(crate) fn state_label(task: &TaskRecord) -> &'static str {
    if task.is_undelivered() {
        return "undelivered";
    }
    match (task.state, &task.unverified) {
        (TaskState::Completed, Some(_)) => return "completed, unverified",
        (TaskState::Blocked, Some(_)) => return "blocked, unverified",
        _ => {}
    }
    match task.blocked_why {
        Some(TaskBlockedReason::Paused) => "paused",
        Some(
            TaskBlockedReason::Person
            | TaskBlockedReason::Child
            | TaskBlockedReason::Provider
            | TaskBlockedReason::Outage
            | TaskBlockedReason::Budget
            | TaskBlockedReason::WorkerFault,
        )
        | None => task.state.as_str(),
    }
}

/// How a state looks.
pub(crate) const fn state_style(state: TaskState) -> TextStyle {
    match state {
        TaskState::Completed => TextStyle::Good,
        TaskState::Discarded => TextStyle::Bad,
        TaskState::Running | TaskState::Retryable | TaskState::Blocked => TextStyle::Warn,
        TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Cancelled => {
            TextStyle::Dim
        }
    }
}

/// How a task that waits for a person goes on; `None` where it waits for none.
pub(crate) fn unblock_hint(task: &TaskRecord) -> Option<String> {
    if task.is_undelivered() {
        let id = task.id.short();
        return Some(format!(
            "its work is done: `docket apply {id}` tries again, `docket reject {id} --comment TEXT` has the model \
             try again, `docket accept {id}` says it is settled"
        ));
    }
    let why = task.blocked_why?;
    if why == TaskBlockedReason::Person && task.unverified.is_some() {
        let id = task.id.short();
        return Some(format!(
            "`docket answer {id} accept` completes it as unverified, `docket answer {id} again` runs its checks once \
             more, and any other answer goes to the model"
        ));
    }
    unblock_hint_for_reason(task.id, why)
}

fn unblock_hint_for_reason(task: TaskId, why: TaskBlockedReason) -> Option<String> {
    let id = task.short();
    match why {
        TaskBlockedReason::Person => Some(format!("`docket answer {id} TEXT` answers it")),
        TaskBlockedReason::Provider | TaskBlockedReason::WorkerFault => {
            Some(format!("once that is done, `docket answer {id}` lets it go on"))
        }
        TaskBlockedReason::Outage => Some(format!(
            "it goes on by itself while a coordinator serves; `docket retry {id}` does so at once"
        )),
        TaskBlockedReason::Budget => {
            Some("it goes on by itself once its batch may use more: `docket batch budget`".to_owned())
        }
        TaskBlockedReason::Child | TaskBlockedReason::Paused => None,
    }
}
