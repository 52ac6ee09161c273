//! `fire`: what is due of a schedule.

use docket_schema::{
    ids::Timestamp,
    system::{FiringResult, MissedFiringPolicy, OverlapPolicy, ScheduleFired, ScheduleRecord, SkipReason},
};

use crate::decide::CronTimetable;

/// A firing that is later than this was missed: no coordinator ran. One that runs looks every few seconds.
pub const MISSED_AFTER_MS: u64 = 60_000;

/// The firing of `record` that is due at `now`, if one is. Of several only the last: those before it were missed.
/// `is_busy` says whether the task of the firing before has not ended.
pub fn fire(
    record: &ScheduleRecord,
    timetable: &CronTimetable,
    is_busy: bool,
    now: Timestamp,
) -> Option<ScheduleFired> {
    if record.paused {
        return None;
    }
    let at = timetable.last_until(now).filter(|at| *at > settled_until(record, now))?;
    let schedule = &record.set.schedule;
    let gave = if schedule.missed == MissedFiringPolicy::Skip && now.ms_since(at) > MISSED_AFTER_MS {
        FiringResult::Skipped(SkipReason::Missed)
    } else if schedule.overlap == OverlapPolicy::Skip && is_busy {
        FiringResult::Skipped(SkipReason::Overlap)
    } else {
        FiringResult::Task(record.task_id_at(at))
    };
    Some(ScheduleFired { name: record.set.name.clone(), at, gave, by: None })
}

/// Until when the firings of `record` are done with. What lies further ahead than a late firing was written by a clock
/// that was ahead: then only the last minute's are due, which a coordinator that ran meanwhile has not passed over, and
/// one that had fired before gives the same task again, which is accepted once.
pub fn settled_until(record: &ScheduleRecord, now: Timestamp) -> Timestamp {
    if record.due_after.ms_since(now) > MISSED_AFTER_MS {
        now.minus_ms(MISSED_AFTER_MS)
    } else {
        record.due_after
    }
}
