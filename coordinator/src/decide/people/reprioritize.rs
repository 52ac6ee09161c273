//! `reprioritize`: somebody wants the task sooner or later.

use docket_schema::task::{TaskRecord, TaskReprioritized};

use crate::decide::{Plan, Rejection};

/// Changes the priority; the caller has checked its bounds.
///
/// # Errors
/// The task has ended.
pub fn reprioritize(record: &TaskRecord, priority: i16) -> Result<Plan, Rejection> {
    if record.state.is_ended() {
        return Err(Rejection::WrongState { state: record.state, remedy: "it has ended; retry it first" });
    }
    if record.spec.priority == priority {
        return Ok(Plan::default());
    }
    Ok(Plan { task: vec![TaskReprioritized { priority }.into()], ..Plan::default() })
}
