//! A task in lists: its row for programs, its state label, and how a person can unblock it.

use docket_schema::{
    api::ProviderWait,
    ids::{BatchId, QueueName, RunId, TaskId, Timestamp},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use serde::Serialize;

use crate::output::display::TextStyle;

/// A task as shown by `--json`: flat and stable.
#[derive(Debug, Serialize)]
pub(crate) struct TaskRow {
    id: TaskId,
    state: TaskState,
    /// What a blocked task waits for: `person`, `child`, `paused`, `provider`, `outage`, `budget`.
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
    /// Why a completed task, or one that waits for a person, is unverified.
    unverified: Option<String>,
    /// The provider rate limit that its run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<ProviderWait>,
}

impl TaskRow {
    /// Builds the row of a task, with the rate limit its run waits for, if it is among `waits`.
    pub(crate) fn from_task_with_waits(task: &TaskRecord, waits: &[ProviderWait]) -> Self {
        let waits = waits.iter().find(|wait| wait.task == task.id).cloned();
        Self { waits, ..Self::from_task(task) }
    }

    /// Builds the row of a task.
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

/// Returns the label of a task's state: a paused task is blocked but waits for nothing else, and an unverified
/// result is never shown as verified.
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

/// The style of a state.
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

/// Says how to resume a task that waits for a person; `None` if it does not.
pub(crate) fn unblock_hint(task: &TaskRecord) -> Option<String> {
    if task.is_undelivered() {
        let id = task.id.short();
        return Some(format!(
            "its work is done: `docket apply {id}` tries again, `docket reject {id} --comment TEXT` has the model \
             try again, `docket accept {id}` marks it as resolved"
        ));
    }
    let why = task.blocked_why?;
    if why == TaskBlockedReason::Person && task.unverified.is_some() {
        let id = task.id.short();
        return Some(format!(
            "`docket answer {id} accept` completes it as unverified, `docket answer {id} again` runs its checks once \
             more, and any other answer is sent to the model"
        ));
    }
    unblock_hint_for_reason(task.id, why)
}

fn unblock_hint_for_reason(task: TaskId, why: TaskBlockedReason) -> Option<String> {
    let id = task.short();
    match why {
        TaskBlockedReason::Person => Some(format!("`docket answer {id} TEXT` answers it")),
        TaskBlockedReason::Provider | TaskBlockedReason::WorkerFault => {
            Some(format!("fix that, then run `docket answer {id}` to resume it"))
        }
        TaskBlockedReason::Outage => Some(format!(
            "it resumes automatically while a coordinator is running; `docket retry {id}` resumes it now"
        )),
        TaskBlockedReason::Budget => {
            Some("it resumes automatically when its batch budget is raised: `docket batch budget`".to_owned())
        }
        TaskBlockedReason::Child | TaskBlockedReason::Paused => None,
    }
}
