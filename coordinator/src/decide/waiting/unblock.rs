//! `unblock`: resumes a blocked task with its current run.

use docket_schema::{
    event::NewEvent,
    task::{TaskRecord, TaskState, TaskUnblocked},
};

use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// Makes the task available again; `inbox` (the answer, `Unpaused`) is appended to its run's stream.
///
/// # Errors
/// Rejected if the task is not blocked.
pub fn unblock(record: &TaskRecord, inbox: Vec<NewEvent>) -> Result<CommandPlan, CommandRejection> {
    if record.state != TaskState::Blocked {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it does not wait for an answer",
        });
    }
    Ok(CommandPlan {
        task_events: vec![TaskUnblocked {}.into()],
        run_write: record.run.map(|run| RunWrite {
            run,
            condition: RunCondition::AtHead,
            events: inbox,
            fence: FenceAfter::Unchanged,
        }),
        ..CommandPlan::default()
    })
}
