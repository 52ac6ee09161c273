//! Schedules as a coordinator keeps and fires them. Any number of coordinators may, on one store.
//!
//! A firing is first recorded, at the head of `system/schedules` that it was decided on: of two coordinators one is
//! refused, reads on and decides again. Then its task is submitted, under the id that the record names. A crash between the
//! two loses nothing: whoever appends to the stream next, and every round, first submits what a record names and the
//! store lacks. It doubles nothing: an id is accepted once.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use docket_schema::{
    ids::{StreamId, TaskId, Timestamp},
    system::{
        FiringResult, ScheduleFired, ScheduleName, ScheduleRecord, SchedulesFold, SystemEvent, TopicFold as _,
    },
};

use super::{AppendRetries, CachedFold, FoldError, TailedFold, append_if_first, system_append};
use crate::{
    decide::{self, CronTimetable},
    store::{AppendCondition, AppendError, LogAppend, NewTask, Store},
};

/// Firings recorded by one append; the next round follows at once while there are as many.
const FIRINGS_MAX: usize = 100;

/// Appends of one round: beyond them the next round follows at once.
const ROUND_APPENDS_MAX: u32 = 16;

impl CachedFold for SchedulesFold {
    const UNREADABLE: &'static str =
        "the log's schedules cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many change schedules at once; try again";
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiringRound {
    /// Tasks that were submitted.
    pub submitted: usize,
    /// When the next firing is due; none where none will be.
    pub next_at: Option<Timestamp>,
}

/// The fold, and which of the tasks that it names are stored.
#[derive(Debug, Default)]
pub struct ScheduleTable {
    /// What is set.
    pub fold: TailedFold<SchedulesFold>,
    /// The last task of each schedule that is known to be stored.
    stored: RwLock<BTreeMap<ScheduleName, TaskId>>,
}

impl ScheduleTable {
    /// Reads on, and submits what a firing names and the store lacks. Answers the fold, of whose every firing the task is
    /// stored, and how many tasks were submitted.
    async fn settle_firings(
        &self,
        store: &dyn Store,
        now: Timestamp,
    ) -> Result<(SchedulesFold, usize), FoldError> {
        let mut submitted = 0;
        let mut retries = AppendRetries::new(SchedulesFold::CONTENDED);
        loop {
            self.fold.catch_up(store).await?;
            let known = self.fold.clone_fold();
            let mut refused = None;
            for record in known.all() {
                let Some(task) = record.last_task.filter(|task| !self.is_stored(&record.set.name, *task))
                else {
                    continue;
                };
                // The stream, not the task's row: an archived task has none.
                if store.stream_head(StreamId::Task(task)).await?.is_none() {
                    match submit_firing(store, record, task, now).await {
                        Ok(()) => submitted += 1,
                        Err(AppendError::Store(error)) => return Err(error.into()),
                        Err(error) => {
                            refused = Some(refused_firing(record, &error));
                            break;
                        }
                    }
                }
                let mut stored = self.stored.write().unwrap_or_else(PoisonError::into_inner);
                stored.insert(record.set.name.clone(), task);
            }
            let Some(refused) = refused else { return Ok((known, submitted)) };
            tracing::warn!(schedule = %refused.name, "a task of a schedule is refused: {:?}", refused.gave);
            retries.append(store, schedule_append(&known, &[refused.into()], now)).await?;
        }
    }

    fn is_stored(&self, name: &ScheduleName, task: TaskId) -> bool {
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        stored.get(name) == Some(&task)
    }

    /// As [`TailedFold::change`], once the task of every firing is stored. Answers the fold, for which that holds as well.
    pub async fn change<E: From<FoldError>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        decide: impl Fn(&SchedulesFold) -> Result<Option<SystemEvent>, E>,
    ) -> Result<SchedulesFold, E> {
        let mut retries = AppendRetries::new(SchedulesFold::CONTENDED);
        loop {
            let (known, _) = self.settle_firings(store, now).await?;
            let Some(event) = decide(&known)? else { return Ok(known) };
            if retries.append(store, schedule_append(&known, &[event], now)).await? {
                return Ok(self.settle_firings(store, now).await?.0);
            }
        }
    }

    /// Fires what is due at `now`.
    pub async fn fire_due(&self, store: &dyn Store, now: Timestamp) -> Result<FiringRound, FoldError> {
        let mut submitted = 0;
        for _ in 0..ROUND_APPENDS_MAX {
            let (known, count) = self.settle_firings(store, now).await?;
            submitted += count;
            let mut fired = Vec::new();
            let mut next_at: Option<Timestamp> = None;
            for record in known.all() {
                if let Some(firing) = due_firing(store, record, now).await? {
                    fired.push(SystemEvent::from(firing));
                }
                let next = next_firing(record, now);
                next_at = [next_at, next].into_iter().flatten().min();
            }
            if fired.is_empty() {
                return Ok(FiringRound { submitted, next_at });
            }
            fired.truncate(FIRINGS_MAX);
            // Their tasks are submitted by the next look, as if another had recorded them.
            append_if_first(store, schedule_append(&known, &fired, now)).await?;
        }
        // More are due than fit, or others fire as well: at once again.
        Ok(FiringRound { submitted, next_at: Some(now) })
    }
}

/// The next firing of a schedule after `now`; none while it rests.
pub fn next_firing(record: &ScheduleRecord, now: Timestamp) -> Option<Timestamp> {
    if record.paused {
        return None;
    }
    parse_timetable(record)?.next_after(now.max(decide::settled_until(record, now)))
}

/// One that an older build took and this one does not: it is told, and never fires.
fn parse_timetable(record: &ScheduleRecord) -> Option<CronTimetable> {
    let schedule = &record.set.schedule;
    CronTimetable::new(&schedule.cron, &schedule.tz)
        .inspect_err(|error| tracing::error!(schedule = %record.set.name, "a schedule cannot fire: {error}"))
        .ok()
}

async fn due_firing(
    store: &dyn Store,
    record: &ScheduleRecord,
    now: Timestamp,
) -> Result<Option<ScheduleFired>, FoldError> {
    let Some(timetable) = parse_timetable(record) else { return Ok(None) };
    let Some(free) = decide::fire(record, &timetable, false, now) else { return Ok(None) };
    let is_busy = match record.last_task {
        Some(task) => store.get_task(task).await?.is_some_and(|(task, _)| !task.state.is_ended()),
        None => false,
    };
    Ok(if is_busy { decide::fire(record, &timetable, true, now) } else { Some(free) })
}

async fn submit_firing(
    store: &dyn Store,
    record: &ScheduleRecord,
    id: TaskId,
    now: Timestamp,
) -> Result<(), AppendError> {
    let task = NewTask { id, spec: (*record.set.schedule.spec).clone(), fork: None };
    store.submit(vec![task], schedule_submitter(&record.set.name), now).await.map(drop)
}

/// Who submits a schedule's tasks, as their first event says.
pub fn schedule_submitter(name: &ScheduleName) -> String {
    format!("schedule/{name}")
}

fn refused_firing(record: &ScheduleRecord, error: &AppendError) -> ScheduleFired {
    let last = record.last_firing.as_ref();
    ScheduleFired {
        name: record.set.name.clone(),
        at: last.map_or(record.due_after, |fired| fired.at),
        gave: FiringResult::Refused(error.to_string()),
        by: last.and_then(|fired| fired.by.clone()),
    }
}

fn schedule_append(known: &SchedulesFold, events: &[SystemEvent], now: Timestamp) -> LogAppend {
    system_append(SchedulesFold::TOPIC, AppendCondition::ExpectedSeq(known.head()), events, &[], now)
}
