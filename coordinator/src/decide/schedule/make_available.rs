//! `make_available`: a schedule or a backoff is over, a rest at an outage, or what a batch may use was raised.

use docket_schema::{
    ids::Timestamp,
    run::BY_OUTAGE_TIMER,
    task::{TaskBlockedReason, TaskMadeAvailable, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, user_commands::answer::answer};

/// How far the clocks of two coordinators of one store may be apart, in milliseconds, while neither has been stepped.
pub const CLOCK_SKEW_MAX_MS: u64 = 2000;

/// Makes the task available if its time has come; otherwise plans nothing, for several schedulers
/// may see the same task.
pub fn make_available(record: &TaskRecord, now: Timestamp) -> CommandPlan {
    let is_due = record.available_at <= now || is_backoff_too_long(record, now);
    let rests = record.blocked_why == Some(TaskBlockedReason::Outage);
    if rests && is_due {
        // As if somebody had said so: the run asks again what it asked last.
        return answer(record, BY_OUTAGE_TIMER, &"".into()).unwrap_or_default();
    }
    // The store lists those whose batch may use more now. Where that is used up by then, it is available and not leased.
    if record.blocked_why == Some(TaskBlockedReason::Budget) {
        return answer(record, BY_OUTAGE_TIMER, &"".into()).unwrap_or_default();
    }
    let waits = matches!(record.state, TaskState::Scheduled | TaskState::Retryable);
    if waits && is_due {
        CommandPlan { task_events: vec![TaskMadeAvailable {}.into()], ..CommandPlan::default() }
    } else {
        CommandPlan::default()
    }
}

/// Whether a backoff ends further off than any of the task's backoffs lasts: it was decided by a clock that was ahead, and
/// is over. An instant that a person chose is never too far off.
pub fn is_backoff_too_long(record: &TaskRecord, now: Timestamp) -> bool {
    let backs_off =
        record.state == TaskState::Retryable || record.blocked_why == Some(TaskBlockedReason::Outage);
    backs_off
        && record.available_at.ms_since(now)
            > record.spec.backoff.max_delay_ms().saturating_add(CLOCK_SKEW_MAX_MS)
}
