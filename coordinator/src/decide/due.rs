//! `make_available`: a schedule or a backoff is over, or a rest at an outage.

use docket_schema::{
    ids::Timestamp,
    run::BY_CLOCK,
    task::{TaskBlockedWhy, TaskMadeAvailable, TaskRecord, TaskState},
};

use super::{Plan, answer};

/// Makes the task available if its time has come; otherwise plans nothing, for several schedulers
/// may see the same task.
pub fn make_available(record: &TaskRecord, now: Timestamp) -> Plan {
    let rests = record.blocked_why == Some(TaskBlockedWhy::Outage);
    if rests && record.available_at <= now {
        // As if somebody had said so: the run asks again what it asked last.
        return answer(record, BY_CLOCK, &"".into()).unwrap_or_default();
    }
    let waits = matches!(record.state, TaskState::Scheduled | TaskState::Retryable);
    if waits && record.available_at <= now {
        Plan { task: vec![TaskMadeAvailable {}.into()], run: None, superseded: None }
    } else {
        Plan::default()
    }
}
