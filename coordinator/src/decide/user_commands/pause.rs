//! `pause` and `unpause`: stop a task and let it continue from the same point.
//!
//! A leased run is asked to pause through an event in its stream and stops at the beginning of its next turn.
//! A task that is not leased is paused at once. In both cases no worker holds it and no counter changes.

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    ids::{RunId, Turn},
    run::{PauseRequested, RunEvent, Unpaused},
    task::{TaskBlockedReason, TaskPaused, TaskRecord, TaskState},
};

use crate::decide::{
    CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite, waiting::unblock::unblock,
};

/// Asks a leased run to pause, or pauses a task that waits for a worker or for its time. Pausing a paused
/// task changes nothing.
///
/// # Errors
/// Rejected if the task has ended or waits for something else.
pub fn pause(record: &TaskRecord, by: &str) -> Result<CommandPlan, CommandRejection> {
    let refused = |remedy| Err(CommandRejection::WrongState { state: record.state, remedy });
    match (record.state, record.run) {
        (TaskState::Running, Some(run)) => {
            Ok(run_event_plan(run, RunEvent::from(PauseRequested { by: by.to_owned() })))
        }
        (TaskState::Running, None) => refused("the running task has no run, so the log is damaged"),
        (TaskState::Blocked, _) if record.blocked_why == Some(TaskBlockedReason::Paused) => {
            Ok(CommandPlan::default())
        }
        (TaskState::Blocked, Some(run)) if record.blocked_why == Some(TaskBlockedReason::Child) => {
            // It is blocked on its children and stays paused after they have answered.
            Ok(run_event_plan(run, RunEvent::from(PauseRequested { by: by.to_owned() })))
        }
        (TaskState::Blocked, _) => refused("it is already blocked until its question is answered"),
        (TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Retryable, _) => {
            let task = vec![TaskPaused { by: by.to_owned() }.into()];
            Ok(CommandPlan { task_events: task, ..CommandPlan::default() })
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused("it has ended; there is nothing to pause")
        }
    }
}

/// Resumes a paused task with its current run, or withdraws a pause request that the run has not reached yet.
///
/// # Errors
/// Rejected if the task is not paused and has no run with a pause request.
pub fn unpause(record: &TaskRecord, by: &str) -> Result<CommandPlan, CommandRejection> {
    let unpaused = || RunEvent::from(Unpaused { by: by.to_owned() });
    let refused = |remedy| Err(CommandRejection::WrongState { state: record.state, remedy });
    match (record.state, record.run) {
        (TaskState::Blocked, _) if record.blocked_why == Some(TaskBlockedReason::Paused) => {
            unblock(record, vec![unpaused().encode(Turn(0))])
        }
        (TaskState::Blocked, Some(run)) if record.blocked_why == Some(TaskBlockedReason::Child) => {
            Ok(run_event_plan(run, unpaused()))
        }
        (TaskState::Blocked, _) => refused("it is not paused: it waits for an answer"),
        (TaskState::Running | TaskState::Available, Some(run)) => Ok(run_event_plan(run, unpaused())),
        (TaskState::Running | TaskState::Available, None)
        | (TaskState::Pending | TaskState::Scheduled | TaskState::Retryable, _) => {
            refused("it is not paused and will run anyway")
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused(match record.last_run {
                Some(_) => "it has ended; `docket resume` continues its run",
                None => "it has ended without a run; `docket retry` starts one",
            })
        }
    }
}

/// Plans an event for the run alone; the task does not change.
fn run_event_plan(run: RunId, event: RunEvent) -> CommandPlan {
    let events: Vec<NewEvent> = vec![event.encode(Turn(0))];
    let write = RunWrite { run, condition: RunCondition::AtHead, events, fence: FenceAfter::Unchanged };
    CommandPlan { task_events: Vec::new(), run_write: Some(write), ..CommandPlan::default() }
}
