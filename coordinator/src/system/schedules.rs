//! Schedules as a coordinator keeps and fires them. Any number of coordinators may, on one store.
//!
//! A firing is first recorded, at the head of `system/schedules` that it was decided on: of two coordinators one is
//! refused, reads on and decides anew. Then its task is submitted, under the id that the record names. A crash between the
//! two loses nothing: whoever appends to the stream next, and every round, first submits what a record names and the
//! store lacks. It doubles nothing: an id is accepted once.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use docket_schema::{
    event::TypedEvent as _,
    ids::{BlobHash, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    names,
    system::{Fired, ScheduleFired, ScheduleName, ScheduleRecord, Schedules, SystemEvent, TopicError},
    wire::PAGE_EVENTS_MAX,
};

use crate::{
    decide::{self, Timetable},
    store::{Append, AppendError, Condition, NewTask, Store, StoreError},
};

/// The stream.
pub const STREAM: StreamId = StreamId::System(SystemTopic::Schedules);

/// Firings recorded by one append; the next round follows at once while there are as many.
const FIRINGS_MAX: usize = 100;

/// How often what another was faster with is decided anew.
const TRIES: u32 = 16;

/// Schedules could not be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds does not fold.
    #[error("the log's schedules cannot be read; `docket verify` says more, a newer docket may know them")]
    Log(#[from] TopicError),
    /// An append was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Others were faster, again and again.
    #[error("many change schedules at once; try again")]
    Contended,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Tasks that were submitted.
    pub submitted: usize,
    /// When the next firing is due; none where none will be.
    pub next_at: Option<Timestamp>,
}

/// The fold, as far as this coordinator has read it.
#[derive(Debug, Default)]
pub struct ScheduleTable {
    known: RwLock<Schedules>,
    /// The last task of each schedule that is known to be stored.
    stored: RwLock<BTreeMap<ScheduleName, TaskId>>,
}

impl ScheduleTable {
    /// What was read.
    pub fn known(&self) -> Schedules {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads what the log has that the table lacks. Any number of callers may at once.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub async fn catch_up(&self, store: &dyn Store) -> Result<(), ScheduleError> {
        loop {
            let head = self.known.read().unwrap_or_else(PoisonError::into_inner).head();
            let page = store.read(STREAM, head, PAGE_EVENTS_MAX).await?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            for event in &page {
                // Another may have read the same meanwhile.
                if event.seq > known.head() {
                    known.apply(&event.by_ref())?;
                }
            }
            if page.len() < PAGE_EVENTS_MAX as usize {
                return Ok(());
            }
        }
    }

    /// Reads on, and submits what a firing names and the store lacks. Answers the fold, of whose every firing the task is
    /// stored, and how many tasks were submitted.
    async fn settled(&self, store: &dyn Store, now: Timestamp) -> Result<(Schedules, usize), ScheduleError> {
        let mut submitted = 0;
        for _ in 0..TRIES {
            self.catch_up(store).await?;
            let known = self.known();
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
            match append(store, &known, vec![refused.into()], now).await {
                Ok(()) | Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ScheduleError::Contended)
    }

    fn is_stored(&self, name: &ScheduleName, task: TaskId) -> bool {
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        stored.get(name) == Some(&task)
    }

    /// Appends what `decide` makes of the fold; nothing where it makes nothing. Called again where another was faster.
    ///
    /// # Errors
    /// What `decide` says, or [`ScheduleError`].
    pub async fn change<E: From<ScheduleError>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        decide: impl Fn(&Schedules) -> Result<Option<SystemEvent>, E>,
    ) -> Result<Schedules, E> {
        for _ in 0..TRIES {
            let (known, _) = self.settled(store, now).await?;
            let Some(event) = decide(&known)? else { return Ok(known) };
            match append(store, &known, vec![event], now).await {
                Ok(()) => return Ok(self.settled(store, now).await?.0),
                Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(ScheduleError::from(error).into()),
            }
        }
        Err(ScheduleError::Contended.into())
    }

    /// Fires what is due at `now`.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub async fn round(&self, store: &dyn Store, now: Timestamp) -> Result<Round, ScheduleError> {
        let mut submitted = 0;
        for _ in 0..TRIES {
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
            match append(store, &known, fired, now).await {
                // Their tasks are submitted by the next look, as if another had recorded them.
                Ok(()) | Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(error.into()),
            }
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
) -> Result<Option<ScheduleFired>, ScheduleError> {
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

async fn append(
    store: &dyn Store,
    known: &Schedules,
    events: Vec<SystemEvent>,
    now: Timestamp,
) -> Result<(), AppendError> {
    let mut named = Vec::new();
    events.iter().for_each(|event| names::of_system(event, &mut named));
    let mut names: Vec<BlobHash> = named.into_iter().map(|named| named.blob.hash).collect();
    names.sort_unstable();
    names.dedup();
    let append = Append {
        stream: STREAM,
        condition: Condition::Expected(known.head()),
        events: events.iter().map(|event| event.encode(Turn(0))).collect(),
        blobs: Vec::new(),
        names,
        now,
    };
    store.append(append).await.map(drop)
}
