//! `reprioritize`: changes a task's priority.

use docket_schema::task::{TaskRecord, TaskReprioritized};

use crate::decide::{CommandPlan, CommandRejection};

/// Changes the priority; the caller has checked its bounds.
///
/// # Errors
/// Rejected if the task has ended.
pub fn reprioritize(record: &TaskRecord, priority: i16) -> Result<CommandPlan, CommandRejection> {
    if record.state.is_ended() {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it has ended; retry it first",
        });
    }
    if record.spec.priority == priority {
        return Ok(CommandPlan::default());
    }
    Ok(CommandPlan { task_events: vec![TaskReprioritized { priority }.into()], ..CommandPlan::default() })
}
