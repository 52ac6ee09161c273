//! `cancel`: ends a task that is no longer wanted, even while it runs.

use docket_schema::{
    run::RunOutcome,
    task::{TaskCancelled, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Cancels the task. Its current run ends with it and the run's stream closes, so a worker still executing it
/// learns this from its next append or heartbeat. Cancelling twice changes nothing.
///
/// # Errors
/// Rejected if the task was completed or discarded.
pub fn cancel(record: &TaskRecord, by: &str, reason: &str) -> Result<CommandPlan, CommandRejection> {
    match record.state {
        TaskState::Cancelled => Ok(CommandPlan::default()),
        TaskState::Completed | TaskState::Discarded => Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it has ended; there is nothing to cancel",
        }),
        TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Available
        | TaskState::Running
        | TaskState::Retryable
        | TaskState::Blocked => Ok(CommandPlan {
            task_events: vec![TaskCancelled { by: by.to_owned(), reason: reason.to_owned() }.into()],
            run_write: record.run.map(|run| RunWrite::ended_by_coordinator(run, RunOutcome::Cancelled)),
            ..CommandPlan::default()
        }),
    }
}
