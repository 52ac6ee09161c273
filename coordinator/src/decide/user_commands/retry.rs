//! `retry`: runs an ended or waiting task again from the start as a new run, or continues a run that the
//! model provider or worker faults stopped.

use docket_schema::{
    run::RunOutcome,
    task::{TaskBlockedReason, TaskRecord, TaskRetried, TaskState},
};

use super::answer::answer;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// What a retry does about the task's dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyRetry {
    /// The task waits again for those that are not completed.
    Kept,
    /// The task runs without them, since they may have failed permanently.
    Dropped,
}

/// Makes the task available with fresh counters. The current run ends as superseded, except that a run
/// waiting for budget, a key or a worker continues with its progress: paid work is not repeated, and the
/// reason, which would be an answer to the model, is dropped.
///
/// # Errors
/// Rejected if the task is running, is already waiting for a worker, or waits for dependencies that are kept;
/// if it is a fork, which has no start of its own; or if another task holds its deduplication key (checked by
/// the store).
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
            remedy: "a fork cannot be run from the start: use `docket resume` on its run, or fork again",
        });
    }
    match record.state {
        TaskState::Running => {
            let remedy = if record.forked_from.is_some() {
                "a fork cannot be run from the start: use `docket resume` on its run, which ends the \
                 current one"
            } else {
                "cancel it first, then retry"
            };
            Err(CommandRejection::WrongState { state: record.state, remedy })
        }
        TaskState::Scheduled | TaskState::Available => {
            Err(CommandRejection::WrongState { state: record.state, remedy: "it will run anyway" })
        }
        // The next attempt of a run that continues another run's history: it only waits for its time.
        TaskState::Retryable if record.run.is_some() => {
            let retried =
                TaskRetried { by: by.to_owned(), reason: reason.to_owned(), run: record.run, waits: false };
            Ok(CommandPlan { task_events: vec![retried.into()], ..CommandPlan::default() })
        }
        TaskState::Pending if dependencies == DependencyRetry::Kept => Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it starts once the tasks it depends on are completed: retry the failed ones, or skip \
                 them with `docket retry --without-dependencies`",
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
