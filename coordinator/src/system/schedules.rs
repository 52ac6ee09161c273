//! Schedules as a coordinator stores and fires them. Any number of coordinators can do so on one store.
//!
//! A firing is first recorded at the expected head of `system/schedules`: of two coordinators one is refused,
//! reads on and decides again. Then its task is submitted under the id in the record. A crash between the two
//! loses nothing: every later append to the stream, and every round, first submits recorded tasks that are
//! missing. Nothing is duplicated, because an id is accepted once.

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

/// Firings per append; a full append is followed by the next round at once.
const FIRINGS_MAX: usize = 100;

/// Appends per round; beyond them the next round follows at once.
const ROUND_APPENDS_MAX: u32 = 16;

impl CachedFold for SchedulesFold {
    const UNREADABLE: &'static str =
        "the log's schedules cannot be read; run `docket verify` for details, or use a newer docket";
    const CONTENDED: &'static str = "too many concurrent changes of schedules; try again";
}

/// Outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiringRound {
    /// Tasks submitted.
    pub submitted: usize,
    /// Time of the next firing, if any.
    pub next_at: Option<Timestamp>,
}

/// The fold, and which of its tasks are known to be stored.
#[derive(Debug, Default)]
pub struct ScheduleTable {
    /// The fold of the stream.
    pub fold: TailedFold<SchedulesFold>,
    /// The last task of each schedule that is known to be stored.
    stored: RwLock<BTreeMap<ScheduleName, TaskId>>,
}

impl ScheduleTable {
    /// Catches up and submits missing tasks of recorded firings. Returns the fold, all of whose firings have
    /// stored tasks, and the number of tasks submitted.
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
                // The stream and not the task's row, because an archived task has no row.
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

    /// Like [`TailedFold::change`], once the task of every firing is stored. Returns the resulting fold, for
    /// which that holds too.
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

    /// Fires the schedules due at `now`.
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
            // Their tasks are submitted by the next pass, as if another coordinator had recorded them.
            append_if_first(store, schedule_append(&known, &fired, now)).await?;
        }
        // More are due than fit, or others fire as well: run again at once.
        Ok(FiringRound { submitted, next_at: Some(now) })
    }
}

/// Returns the next firing of a schedule after `now`; `None` while it is paused.
pub fn next_firing(record: &ScheduleRecord, now: Timestamp) -> Option<Timestamp> {
    if record.paused {
        return None;
    }
    parse_timetable(record)?.next_after(now.max(decide::settled_until(record, now)))
}

/// A timetable that an older build accepted and this one rejects is reported and never fires.
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

/// Returns the submitter recorded in a schedule's tasks.
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
