//! `pause` and `unpause`: somebody wants a task to rest, and to go on where it rested.
//!
//! A run that a worker is at is asked, and rests at its next turn's begin, by an event of its own. A task that
//! nobody is at is held at once. Either way no worker has it, and no counter counts it.

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    ids::{RunId, Turn},
    run::{PauseRequested, RunEvent, Unpaused},
    task::{TaskBlockedReason, TaskPaused, TaskRecord, TaskState},
};

use crate::decide::{
    CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite, waiting::unblock::unblock,
};

/// Asks the run in a worker's hands to rest, or holds a task that waits for a worker or for its time.
/// Pausing a paused task changes nothing.
///
/// # Errors
/// The task has ended, or waits for something else.
pub fn pause(record: &TaskRecord, by: &str) -> Result<CommandPlan, CommandRejection> {
    let refused = |remedy| Err(CommandRejection::WrongState { state: record.state, remedy });
    match (record.state, record.run) {
        (TaskState::Running, Some(run)) => {
            Ok(run_event_plan(run, RunEvent::from(PauseRequested { by: by.to_owned() })))
        }
        (TaskState::Running, None) => refused("a task that runs has a run: the log is damaged"),
        (TaskState::Blocked, _) if record.blocked_why == Some(TaskBlockedReason::Paused) => {
            Ok(CommandPlan::default())
        }
        (TaskState::Blocked, Some(run)) if record.blocked_why == Some(TaskBlockedReason::Child) => {
            // It rests for its children, and rests on when they have answered.
            Ok(run_event_plan(run, RunEvent::from(PauseRequested { by: by.to_owned() })))
        }
        (TaskState::Blocked, _) => refused("it rests already, until what it waits for is answered"),
        (TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Retryable, _) => {
            let task = vec![TaskPaused { by: by.to_owned() }.into()];
            Ok(CommandPlan { task_events: task, ..CommandPlan::default() })
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused("it has ended; there is nothing to pause")
        }
    }
}

/// Lets a paused task go on with the run in hand, where that rested; takes back a pause that a run was
/// asked for and has not reached.
///
/// # Errors
/// The task is not paused and no run of it could be asked to.
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
            refused("it is not paused, and is going to run anyway")
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused(match record.last_run {
                Some(_) => "it has ended; `docket resume` goes on with its run",
                None => "it has ended without a run; `docket retry` begins one",
            })
        }
    }
}

/// Words for the run alone: the task is what it was.
fn run_event_plan(run: RunId, event: RunEvent) -> CommandPlan {
    let events: Vec<NewEvent> = vec![event.encode(Turn(0))];
    let write = RunWrite { run, condition: RunCondition::AtHead, events, fence: FenceAfter::Unchanged };
    CommandPlan { task_events: Vec::new(), run_write: Some(write), ..CommandPlan::default() }
}
