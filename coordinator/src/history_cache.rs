//! Runs with their whole history, for routes that look back: read from the store, and cached as far as they had come.
//!
//! Only reads. A cached run grows by its new events alone: moving a slider must not read a log again at each step, and a
//! page that follows a run asks for the timeline after each of its events.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use docket_schema::{
    api::{PAGE_EVENTS_MAX, ParentRef, RunTimeline, RunView},
    event::{Envelope, Head},
    history::{FoldedRun, TimelineRows, build_timeline},
    ids::{RunId, Seq, StreamId, TaskId},
    run::CorruptLog,
};

use crate::store::{Store, StoreError};

/// Longest chain of runs that share history.
const LINEAGE_RUNS_MAX: usize = 100;
/// Runs that are cached: two next to each other, for a few people.
const CACHED_RUNS_MAX: usize = 6;
/// Events of all runs that are cached: some 2 KiB each.
const CACHED_EVENTS_MAX: usize = 60_000;

/// Why a history cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No such run.
    #[error("there is no run {0}")]
    NotFound(RunId),
    /// Too many runs share it.
    #[error("the run stands on more than {LINEAGE_RUNS_MAX} others; retry its task instead")]
    TooDeep,
    /// More events than were asked for.
    #[error("the history is too long for one answer; read it run by run with `after`")]
    TooLong,
    /// It does not fold.
    #[error("the log of run {} cannot be folded; `docket verify {run}` says more", .run.short())]
    Corrupt {
        /// The run.
        run: RunId,
        /// Where.
        #[source]
        source: CorruptLog,
    },
    /// The process ends.
    #[error("the coordinator ends; ask again")]
    ShuttingDown,
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A run, as the store knows it.
pub(crate) async fn get_run_view(store: &dyn Store, run: RunId) -> Result<RunView, HistoryError> {
    store.get_run(run).await?.ok_or(HistoryError::NotFound(run))
}

/// The runs whose history `of` shares, nearest first, each up to where.
pub(crate) async fn list_parents(store: &dyn Store, of: &RunView) -> Result<Vec<ParentRef>, HistoryError> {
    let mut parents = Vec::new();
    let mut next = of.parent;
    while let Some(parent) = next {
        if parents.len() >= LINEAGE_RUNS_MAX {
            return Err(HistoryError::TooDeep);
        }
        parents.push(parent);
        next = get_run_view(store, parent.run).await?.parent;
    }
    Ok(parents)
}

/// The whole history of a run up to `until` of its own stream, oldest first: at most `events_max` events.
pub(crate) async fn read_lineage(
    store: &dyn Store,
    of: &RunView,
    until: Seq,
    events_max: usize,
) -> Result<Vec<Envelope>, HistoryError> {
    let mut parts = list_parents(store, of).await?;
    parts.reverse();
    parts.push(ParentRef { run: of.id, seq: until });
    let mut events = Vec::new();
    for part in parts {
        read_segment(store, part, Seq(0), events_max, &mut events).await?;
    }
    Ok(events)
}

/// Adds the events of a run behind `after`, up to and with the one that the part ends with.
async fn read_segment(
    store: &dyn Store,
    part: ParentRef,
    mut after: Seq,
    events_max: usize,
    events: &mut Vec<Envelope>,
) -> Result<(), HistoryError> {
    loop {
        let page = store.read_events(StreamId::Run(part.run), after, PAGE_EVENTS_MAX).await?;
        let full = page.len() >= PAGE_EVENTS_MAX as usize;
        after = page.last().map_or(after, |event| event.seq);
        events.extend(page.into_iter().filter(|event| event.seq <= part.seq));
        if events.len() > events_max {
            return Err(HistoryError::TooLong);
        }
        if !full || after >= part.seq {
            return Ok(());
        }
    }
}

/// A run as far as it had come when it was read.
#[derive(Debug, Clone)]
pub struct CachedRun {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// The last event of its own stream.
    pub head: Head,
    /// Its history and what that folds to.
    pub folded: FoldedRun,
    rows: TimelineRows,
}

impl CachedRun {
    /// The timeline of the run: of its turns those that changed after this event of its own stream, or all.
    pub fn timeline(&self, after: Seq) -> RunTimeline {
        let behind = usize::try_from(self.head.seq.0.saturating_sub(after.0)).unwrap_or(usize::MAX);
        let place = self.folded.events().len().saturating_sub(behind.saturating_add(1));
        let place = if after == Seq(0) { 0 } else { place };
        let turns = self.rows.rows_since(&self.folded, place).to_vec();
        build_timeline(self.run, self.task, self.head.seq, &self.folded, turns)
    }

    /// Takes the events that follow those it has. Costs the processor: not for a thread that answers requests.
    fn append_events(mut self, events: Vec<Envelope>) -> Result<Self, HistoryError> {
        let run = self.run;
        for event in events {
            if event.stream == StreamId::Run(run) {
                self.head = Head { seq: event.seq, hash: event.hash };
            }
            self.folded.push(event).map_err(|source| HistoryError::Corrupt { run, source })?;
        }
        self.rows.update(&self.folded);
        Ok(self)
    }
}

/// See the module.
pub(crate) struct RunHistoryCache {
    store: Arc<dyn Store>,
    cached: Mutex<VecDeque<Arc<CachedRun>>>,
    /// Held while a log is read: of many who look at one run that continues, one reads it.
    read_lock: tokio::sync::Mutex<()>,
}

impl RunHistoryCache {
    /// An empty cache of the runs of this store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, cached: Mutex::default(), read_lock: tokio::sync::Mutex::default() }
    }

    /// The run as it is now.
    pub(crate) async fn load_run(&self, run: RunId) -> Result<Arc<CachedRun>, HistoryError> {
        let now = get_run_view(&*self.store, run).await?;
        if let Some(cached) = self.find_cached(run, |cached| cached.head == now.head) {
            return Ok(cached);
        }
        let _reading = self.read_lock.lock().await;
        if let Some(cached) = self.find_cached(run, |cached| cached.head.seq >= now.head.seq) {
            return Ok(cached);
        }
        let (known, events) = self.read_new_events(&now).await?;
        // Others that look at the run meanwhile keep it as it was.
        let grown = tokio::task::spawn_blocking(move || Arc::unwrap_or_clone(known).append_events(events));
        let grown = Arc::new(grown.await.map_err(|_| HistoryError::ShuttingDown)??);
        self.insert_cached(Arc::clone(&grown));
        Ok(grown)
    }

    /// The run as far as it is known, taken from the cache, and the events that follow.
    async fn read_new_events(&self, now: &RunView) -> Result<(Arc<CachedRun>, Vec<Envelope>), HistoryError> {
        if let Some(known) = self.take_cached(now.id) {
            let (part, mut events) = (ParentRef { run: now.id, seq: Seq(u64::MAX) }, Vec::new());
            read_segment(&*self.store, part, known.head.seq, usize::MAX, &mut events).await?;
            if events.first().is_some_and(|first| first.prev_hash == known.head.hash) {
                return Ok((known, events));
            }
        }
        let events = read_lineage(&*self.store, now, Seq(u64::MAX), usize::MAX).await?;
        let (folded, rows) = (FoldedRun::default(), TimelineRows::default());
        Ok((Arc::new(CachedRun { run: now.id, task: now.task, head: Head::EMPTY, folded, rows }), events))
    }

    fn find_cached(&self, run: RunId, is_good: impl Fn(&CachedRun) -> bool) -> Option<Arc<CachedRun>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.iter().find(|cached| cached.run == run && is_good(cached)).map(Arc::clone)
    }

    fn take_cached(&self, run: RunId) -> Option<Arc<CachedRun>> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let place = cached.iter().position(|cached| cached.run == run)?;
        cached.remove(place)
    }

    fn insert_cached(&self, new: Arc<CachedRun>) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push_front(new);
        let events = |cached: &VecDeque<Arc<CachedRun>>| -> usize {
            cached.iter().map(|cached| cached.folded.events().len()).sum()
        };
        while cached.len() > CACHED_RUNS_MAX || (cached.len() > 1 && events(&cached) > CACHED_EVENTS_MAX) {
            cached.pop_back();
        }
    }
}
