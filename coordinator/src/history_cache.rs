//! Cache of runs with their full history, for routes that show the past.
//!
//! Read-only. A cached run is extended with its new events alone: moving a slider must not read the whole log
//! at each step, and a page that follows a run requests the timeline after each event.

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
/// Runs in the cache: two side by side for a few people.
const CACHED_RUNS_MAX: usize = 6;
/// Events of all cached runs, about 2 KiB each.
const CACHED_EVENTS_MAX: usize = 60_000;

/// Why a history is not available.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The run does not exist.
    #[error("run {0} does not exist")]
    NotFound(RunId),
    /// Too many runs share the history.
    #[error("the run continues a chain of more than {LINEAGE_RUNS_MAX} others; retry its task instead")]
    TooDeep,
    /// The history has more events than requested.
    #[error("the history is too long for one response; read it run by run with `after`")]
    TooLong,
    /// The events do not fold.
    #[error("the log of run {} cannot be folded; run `docket verify {run}` for details", .run.short())]
    Corrupt {
        run: RunId,
        /// Where and why.
        #[source]
        source: CorruptLog,
    },
    /// The coordinator is shutting down.
    #[error("the coordinator is shutting down; try again")]
    ShuttingDown,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads a run's view from the store.
pub(crate) async fn get_run_view(store: &dyn Store, run: RunId) -> Result<RunView, HistoryError> {
    store.get_run(run).await?.ok_or(HistoryError::NotFound(run))
}

/// Lists the runs whose history `of` shares, nearest first, each with its last shared seq.
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

/// Reads the full history of a run up to `until` of its own stream, oldest first: at most `events_max`
/// events.
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

/// Appends the events of a run after `after`, up to and including the end of the segment.
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

/// A run as of the last time it was read.
#[derive(Debug, Clone)]
pub struct CachedRun {
    pub run: RunId,
    pub task: TaskId,
    /// The last event of its own stream.
    pub head: Head,
    /// Its history and the folded state.
    pub folded: FoldedRun,
    rows: TimelineRows,
}

impl CachedRun {
    /// Returns the timeline of the run: all turns, or those that changed after this event of its own stream.
    pub fn timeline(&self, after: Seq) -> RunTimeline {
        let behind = usize::try_from(self.head.seq.0.saturating_sub(after.0)).unwrap_or(usize::MAX);
        let place = self.folded.events().len().saturating_sub(behind.saturating_add(1));
        let place = if after == Seq(0) { 0 } else { place };
        let turns = self.rows.rows_since(&self.folded, place).to_vec();
        build_timeline(self.run, self.task, self.head.seq, &self.folded, turns)
    }

    /// Appends events to the folded history. CPU-intensive: not for a thread that serves requests.
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

/// Cache of recently viewed runs; see the module.
pub(crate) struct RunHistoryCache {
    store: Arc<dyn Store>,
    cached: Mutex<VecDeque<Arc<CachedRun>>>,
    /// Held while a log is read, so that concurrent readers of a run read it once.
    read_lock: tokio::sync::Mutex<()>,
}

impl RunHistoryCache {
    /// Creates an empty cache for this store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, cached: Mutex::default(), read_lock: tokio::sync::Mutex::default() }
    }

    /// Returns the run as it is now.
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
        // Concurrent readers keep the older version.
        let grown = tokio::task::spawn_blocking(move || Arc::unwrap_or_clone(known).append_events(events));
        let grown = Arc::new(grown.await.map_err(|_| HistoryError::ShuttingDown)??);
        self.insert_cached(Arc::clone(&grown));
        Ok(grown)
    }

    /// Takes the cached run and reads the events that follow.
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
