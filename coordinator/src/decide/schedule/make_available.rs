//! `make_available`: a scheduled time, retry backoff or outage wait has passed, or the batch budget was
//! raised.

use docket_schema::{
    ids::Timestamp,
    run::BY_OUTAGE_TIMER,
    task::{TaskBlockedReason, TaskMadeAvailable, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, user_commands::answer::answer};

/// Largest clock difference between two coordinators of a store, in milliseconds, while neither clock has
/// been stepped.
pub const CLOCK_SKEW_MAX_MS: u64 = 2000;

/// Makes the task available if it is due. Otherwise the plan is empty, since several schedulers may see the
/// same task.
pub fn make_available(record: &TaskRecord, now: Timestamp) -> CommandPlan {
    let is_due = record.available_at <= now || is_backoff_too_long(record, now);
    let rests = record.blocked_why == Some(TaskBlockedReason::Outage);
    if rests && is_due {
        // Handled like a person's answer: the run repeats its last request.
        return answer(record, BY_OUTAGE_TIMER, &"".into()).unwrap_or_default();
    }
    // The store lists tasks whose batch budget was raised. If that is used up again, the task is available
    // but not leased.
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

/// Whether a backoff ends later than any backoff of the task could. It was computed by a clock that was ahead
/// and counts as over. A time that a person chose is never too far away.
pub fn is_backoff_too_long(record: &TaskRecord, now: Timestamp) -> bool {
    let backs_off =
        record.state == TaskState::Retryable || record.blocked_why == Some(TaskBlockedReason::Outage);
    backs_off
        && record.available_at.ms_since(now)
            > record.spec.backoff.max_delay_ms().saturating_add(CLOCK_SKEW_MAX_MS)
}
