//! `make_available`: a schedule or a backoff is over, a rest at an outage, or what a batch may use was raised.

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
    // The store lists those whose batch may use more now. Where that is used up by then, it is available and not leased.
    if record.blocked_why == Some(TaskBlockedWhy::Budget) {
        return answer(record, BY_CLOCK, &"".into()).unwrap_or_default();
    }
    let waits = matches!(record.state, TaskState::Scheduled | TaskState::Retryable);
    if waits && record.available_at <= now {
        Plan { task: vec![TaskMadeAvailable {}.into()], ..Plan::default() }
    } else {
        Plan::default()
    }
}
