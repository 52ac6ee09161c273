//! `make_available`: a schedule or a backoff is over.

use docket_schema::{
    ids::Timestamp,
    task::{TaskMadeAvailable, TaskRecord, TaskState},
};

use super::Plan;

/// Makes the task available if its time has come; otherwise plans nothing, for several schedulers
/// may see the same task.
pub fn make_available(record: &TaskRecord, now: Timestamp) -> Plan {
    let waits = matches!(record.state, TaskState::Scheduled | TaskState::Retryable);
    if waits && record.available_at <= now {
        Plan { task: vec![TaskMadeAvailable {}.into()], run: None, superseded: None }
    } else {
        Plan::default()
    }
}
