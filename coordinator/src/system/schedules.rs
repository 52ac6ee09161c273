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
    system::{Fired, ScheduleFired, ScheduleName, ScheduleRecord, Schedules, SystemEvent, TopicFold as _},
};

use super::{AppendRetries, CachedFold, FoldError, TailedFold, append_if_first, system_append};
use crate::{
    decide::{self, Timetable},
    store::{Append, AppendError, Condition, NewTask, Store},
};

/// Firings recorded by one append; the next round follows at once while there are as many.
const FIRINGS_MAX: usize = 100;

/// Appends of one round: beyond them the next round follows at once.
const ROUND_APPENDS_MAX: u32 = 16;

impl CachedFold for Schedules {
    const UNREADABLE: &'static str =
        "the log's schedules cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many change schedules at once; try again";
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Tasks that were submitted.
    pub submitted: usize,
    /// When the next firing is due; none where none will be.
    pub next_at: Option<Timestamp>,
}

/// The fold, and which of the tasks that it names are stored.
#[derive(Debug, Default)]
pub struct ScheduleTable {
    /// What is set.
    pub fold: TailedFold<Schedules>,
    /// The last task of each schedule that is known to be stored.
    stored: RwLock<BTreeMap<ScheduleName, TaskId>>,
}

impl ScheduleTable {
    /// Reads on, and submits what a firing names and the store lacks. Answers the fold, of whose every firing the task is
    /// stored, and how many tasks were submitted.
    async fn settled(&self, store: &dyn Store, now: Timestamp) -> Result<(Schedules, usize), FoldError> {
        let mut submitted = 0;
        let mut retries = AppendRetries::new(Schedules::CONTENDED);
        loop {
            self.fold.catch_up(store).await?;
            let known = self.fold.clone_fold();
            let mut refused = None;
            for record in known.all() {
                let Some(task) = record.task.filter(|task| !self.is_stored(&record.set.name, *task)) else {
                    continue;
                };
                // The stream, not the task's row: an archived task has none.
                if store.head(StreamId::Task(task)).await?.is_none() {
                    match submit(store, record, task, now).await {
                        Ok(()) => submitted += 1,
                        Err(AppendError::Store(error)) => return Err(error.into()),
                        Err(error) => {
                            refused = Some(not_taken(record, &error));
                            break;
                        }
                    }
                }
                let mut stored = self.stored.write().unwrap_or_else(PoisonError::into_inner);
                stored.insert(record.set.name.clone(), task);
            }
            let Some(refused) = refused else { return Ok((known, submitted)) };
            tracing::warn!(schedule = %refused.name, "a task of a schedule is refused: {:?}", refused.gave);
            retries.append(store, append_to(&known, &[refused.into()], now)).await?;
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
        decide: impl Fn(&Schedules) -> Result<Option<SystemEvent>, E>,
    ) -> Result<Schedules, E> {
        let mut retries = AppendRetries::new(Schedules::CONTENDED);
        loop {
            let (known, _) = self.settled(store, now).await?;
            let Some(event) = decide(&known)? else { return Ok(known) };
            if retries.append(store, append_to(&known, &[event], now)).await? {
                return Ok(self.settled(store, now).await?.0);
            }
        }
    }

    /// Fires what is due at `now`.
    pub async fn round(&self, store: &dyn Store, now: Timestamp) -> Result<Round, FoldError> {
        let mut submitted = 0;
        for _ in 0..ROUND_APPENDS_MAX {
            let (known, count) = self.settled(store, now).await?;
            submitted += count;
            let mut fired = Vec::new();
            let mut next_at: Option<Timestamp> = None;
            for record in known.all() {
                if let Some(firing) = due(store, record, now).await? {
                    fired.push(SystemEvent::from(firing));
                }
                let next = next_of(record, now);
                next_at = [next_at, next].into_iter().flatten().min();
            }
            if fired.is_empty() {
                return Ok(Round { submitted, next_at });
            }
            fired.truncate(FIRINGS_MAX);
            // Their tasks are submitted by the next look, as if another had recorded them.
            append_if_first(store, append_to(&known, &fired, now)).await?;
        }
        // More are due than fit, or others fire as well: at once again.
        Ok(Round { submitted, next_at: Some(now) })
    }
}

/// The next firing of a schedule after `now`; none while it rests.
pub fn next_of(record: &ScheduleRecord, now: Timestamp) -> Option<Timestamp> {
    if record.paused {
        return None;
    }
    timetable(record)?.next(now.max(decide::fired_until(record, now)))
}

/// One that an older build took and this one does not: it is told, and never fires.
fn timetable(record: &ScheduleRecord) -> Option<Timetable> {
    let schedule = &record.set.schedule;
    Timetable::new(&schedule.cron, &schedule.tz)
        .inspect_err(|error| tracing::error!(schedule = %record.set.name, "a schedule cannot fire: {error}"))
        .ok()
}

async fn due(
    store: &dyn Store,
    record: &ScheduleRecord,
    now: Timestamp,
) -> Result<Option<ScheduleFired>, FoldError> {
    let Some(timetable) = timetable(record) else { return Ok(None) };
    let Some(free) = decide::fire(record, &timetable, false, now) else { return Ok(None) };
    let is_busy = match record.task {
        Some(task) => store.task(task).await?.is_some_and(|(task, _)| !task.state.is_ended()),
        None => false,
    };
    Ok(if is_busy { decide::fire(record, &timetable, true, now) } else { Some(free) })
}

async fn submit(
    store: &dyn Store,
    record: &ScheduleRecord,
    id: TaskId,
    now: Timestamp,
) -> Result<(), AppendError> {
    let task = NewTask { id, spec: (*record.set.schedule.spec).clone(), fork: None };
    store.submit(vec![task], submitter(&record.set.name), now).await.map(drop)
}

/// Who submits a schedule's tasks, as their first event says.
pub fn submitter(name: &ScheduleName) -> String {
    format!("schedule/{name}")
}

fn not_taken(record: &ScheduleRecord, error: &AppendError) -> ScheduleFired {
    let last = record.fired.as_ref();
    ScheduleFired {
        name: record.set.name.clone(),
        at: last.map_or(record.since, |fired| fired.at),
        gave: Fired::Refused(error.to_string()),
        by: last.and_then(|fired| fired.by.clone()),
    }
}

fn append_to(known: &Schedules, events: &[SystemEvent], now: Timestamp) -> Append {
    system_append(Schedules::TOPIC, Condition::Expected(known.head()), events, &[], now)
}
