//! `unblock`: what a blocked task waited for is there; it goes on with the run in hand.

use docket_schema::{
    event::NewEvent,
    task::{TaskRecord, TaskState, TaskUnblocked},
};

use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// Makes the task available again; `inbox` (the answer, `Unpaused`) goes to its run's stream.
///
/// # Errors
/// The task is not blocked.
pub fn unblock(record: &TaskRecord, inbox: Vec<NewEvent>) -> Result<CommandPlan, CommandRejection> {
    if record.state != TaskState::Blocked {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it waits for nobody's answer",
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
