//! `retry`: somebody wants an ended or waiting task run again from the start, as a new run; or, where
//! the model's provider or faults of workers stopped a run, that run to go on.

use docket_schema::{
    run::RunOutcome,
    task::{TaskBlockedReason, TaskRecord, TaskRetried, TaskState},
};

use super::answer::answer;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// What becomes of the tasks that a retried one was to come after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyRetry {
    /// It waits again for those that are not completed.
    Kept,
    /// It goes without them: they may have failed for good.
    Dropped,
}

/// Puts the task back with fresh counters. A run in hand ends as superseded; but one that waits
/// for money, a key or a worker goes on where it stands: what was paid for is not bought again, and the reason, which
/// would be an answer to the model, is dropped.
///
/// # Errors
/// The task runs, waits for a worker anyway, or for tasks that it is not to go without; it is a fork, which has no start of its own; or
/// another task holds its deduplication key (the store knows).
pub fn retry(
    record: &TaskRecord,
    by: &str,
    reason: &str,
    dependencies: DependencyRetry,
) -> Result<CommandPlan, CommandRejection> {
    let waits_for = record.blocked_why;
    if matches!(
        waits_for,
        Some(
            TaskBlockedReason::Provider
                | TaskBlockedReason::Outage
                | TaskBlockedReason::Budget
                | TaskBlockedReason::WorkerFault
        )
    ) {
        return answer(record, by, &"".into());
    }
    if record.forked_from.is_some() && record.state != TaskState::Running {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "a fork has no start of its own: `docket resume` its run, or fork again",
        });
    }
    match record.state {
        TaskState::Running => {
            let remedy = if record.forked_from.is_some() {
                "a fork has no start of its own: `docket resume` its run, which ends the one that runs"
            } else {
                "cancel it first, then retry"
            };
            Err(CommandRejection::WrongState { state: record.state, remedy })
        }
        TaskState::Scheduled | TaskState::Available => {
            Err(CommandRejection::WrongState { state: record.state, remedy: "it is going to run anyway" })
        }
        // The next try of a run that stands on another's history: it only waits for its time.
        TaskState::Retryable if record.run.is_some() => {
            let retried =
                TaskRetried { by: by.to_owned(), reason: reason.to_owned(), run: record.run, waits: false };
            Ok(CommandPlan { task_events: vec![retried.into()], ..CommandPlan::default() })
        }
        TaskState::Pending if dependencies == DependencyRetry::Kept => Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it goes on once the tasks that it waits for are completed: retry those that failed, or \
                     go without them, as `docket retry --without-dependencies`",
        }),
        TaskState::Pending
        | TaskState::Retryable
        | TaskState::Blocked
        | TaskState::Completed
        | TaskState::Cancelled
        | TaskState::Discarded => Ok(CommandPlan {
            task_events: vec![
                TaskRetried {
                    by: by.to_owned(),
                    reason: reason.to_owned(),
                    run: None,
                    waits: dependencies == DependencyRetry::Kept && !record.spec.conditions.after.is_empty(),
                }
                .into(),
            ],
            superseded_run: record.run.map(|run| RunWrite::ended_by_coordinator(run, RunOutcome::Superseded)),
            ..CommandPlan::default()
        }),
    }
}
