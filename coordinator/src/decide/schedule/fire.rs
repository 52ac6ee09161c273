//! `fire`: the due firing of a schedule.

use docket_schema::{
    ids::Timestamp,
    system::{FiringResult, MissedFiringPolicy, OverlapPolicy, ScheduleFired, ScheduleRecord, SkipReason},
};

use crate::decide::CronTimetable;

/// A firing later than this counts as missed because no coordinator was running; a running one checks every
/// few seconds.
pub const MISSED_AFTER_MS: u64 = 60_000;

/// Returns the firing of `record` that is due at `now`, if any. If several are due only the last is returned;
/// earlier ones were missed. `is_busy` says whether the task of the previous firing is still unfinished.
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

/// Returns the time up to which firings of `record` have been handled. A recorded time further ahead than a
/// late firing was written by a clock that was ahead. Then only firings of the last minute are due: a
/// coordinator running meanwhile cannot have skipped them, and one that already fired submits the same task
/// id again, which is accepted once.
pub fn settled_until(record: &ScheduleRecord, now: Timestamp) -> Timestamp {
    if record.due_after.ms_since(now) > MISSED_AFTER_MS {
        now.minus_ms(MISSED_AFTER_MS)
    } else {
        record.due_after
    }
}
