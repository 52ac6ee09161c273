//! Reads a run's complete history in parallel pages, for interactive commands.
//!
//! If this process has the store open, pages are read from it directly: over HTTP every event would be encoded
//! and decoded as JSON once more, which costs more than the database. Otherwise pages come from the API. Each
//! page is processed by the thread that read it, so decoding uses every core.

use std::{collections::HashSet, sync::Arc};

use docket_coordinator::store::{EventVisitor, LogReader, Store, StoreError};
use docket_schema::{
    api::{PAGE_EVENTS_MAX, RunView},
    event::{Envelope, Head},
    history::FoldedRun,
    ids::{BlobHash, RunId, Seq, StreamId},
    run::{RunStarted, RunState},
};
use docket_worker::client::{CoordinatorClient, HistoryScope};
use tokio::task::JoinSet;

use crate::output::error::{CauseDisplay, CliError, CliResult, ExitKind, FailWith as _};

/// Concurrent pages: about the number of cores of a small machine, plus one that waits for the disk.
const PAGES_IN_FLIGHT: usize = 4;
/// Events per page: a long run has several pages per core.
const PAGE_EVENTS: u32 = PAGE_EVENTS_MAX / 2;
/// Maximum number of runs in a lineage, as in the coordinator.
const LINEAGE_RUNS_MAX: usize = 100;

/// Where histories are read from.
#[derive(Clone)]
pub(crate) enum HistorySource {
    /// A store that this process has open.
    Store(Arc<dyn Store>),
    /// A coordinator's API.
    Client(CoordinatorClient),
}

/// A range of a run's stream: after the first position, up to and including the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamRange {
    run: RunId,
    after: Seq,
    until: Seq,
}

impl HistorySource {
    /// Returns all events of `run`'s complete history.
    pub(crate) async fn read_events(&self, run: RunId) -> CliResult<Vec<Envelope>> {
        Ok(self.map_pages(run, |page| page).await?.into_iter().flatten().collect())
    }

    async fn run_view(&self, run: RunId) -> CliResult<RunView> {
        match self {
            Self::Client(client) => Ok(client.get_run(run).await?),
            Self::Store(store) => {
                let view = store.get_run(run).await.map_err(store_failure)?;
                view.ok_or_else(|| CliError::new(ExitKind::NotFound, format!("no run {run}")))
            }
        }
    }

    async fn read_range(&self, part: StreamRange) -> CliResult<Vec<Envelope>> {
        let mut events = match self {
            Self::Client(client) => client.list_events(part.run, part.after, Some(PAGE_EVENTS)).await?.events,
            Self::Store(store) => {
                let read = store.read_events(StreamId::Run(part.run), part.after, PAGE_EVENTS).await;
                read.map_err(store_failure)?
            }
        };
        events.retain(|event| event.seq <= part.until);
        Ok(events)
    }

    /// Applies `work` to each page of `run`'s complete history, the shared part of its parents first. Reads up
    /// to the head at the time of the call.
    pub(crate) async fn map_pages<T: Send + 'static>(
        &self,
        run: RunId,
        work: fn(Vec<Envelope>) -> T,
    ) -> CliResult<Vec<T>> {
        let parts = self.page_ranges(run).await?;
        let mut pages: Vec<Option<T>> = Vec::new();
        pages.resize_with(parts.len(), || None);
        let mut waiting = parts.into_iter().enumerate();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < PAGES_IN_FLIGHT
                && let Some((at, part)) = waiting.next()
            {
                let source = self.clone();
                under_way.spawn(async move { (at, source.read_range(part).await.map(work)) });
            }
            let Some(done) = under_way.join_next().await else { break };
            let (at, page) = done.map_err(anyhow::Error::from)?;
            pages[at] = Some(page?);
        }
        Ok(pages.into_iter().flatten().collect())
    }

    async fn page_ranges(&self, run: RunId) -> CliResult<Vec<StreamRange>> {
        let view = self.run_view(run).await?;
        let mut runs = vec![(run, view.head.seq)];
        let mut next = view.parent;
        while let Some(parent) = next {
            if runs.len() > LINEAGE_RUNS_MAX {
                let message =
                    format!("run {} continues more than {LINEAGE_RUNS_MAX} other runs", run.short());
                return Err(CliError::new(ExitKind::Failed, message));
            }
            runs.push((parent.run, parent.seq));
            next = self.run_view(parent.run).await?.parent;
        }
        let runs = runs.into_iter().rev();
        Ok(runs.flat_map(|(run, until)| split_into_pages(run, until)).collect())
    }
}

/// Maps a store error. Damage to the log is left to `docket verify`; other errors are about reaching the store.
fn store_failure(error: StoreError) -> CliError {
    let exit = match error {
        StoreError::Corrupt { .. } | StoreError::Damaged { .. } => ExitKind::Verification,
        StoreError::SchemaMismatch { .. } => ExitKind::EngineMissing,
        StoreError::Unavailable { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Full { .. }
        | StoreError::Schema { .. }
        | StoreError::Internal { .. } => ExitKind::Unreachable,
    };
    CliError { exit, error: error.into() }
}

impl LogReader for HistorySource {
    type Error = CliError;

    fn should_fold_in_parallel(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    fn into_corruption(failure: CliError) -> Result<String, CliError> {
        match failure.exit {
            ExitKind::Verification => Ok(failure.format_message(CauseDisplay::Shown)),
            _ => Err(failure),
        }
    }

    async fn stream_head(&self, stream: StreamId) -> CliResult<Option<Head>> {
        match self {
            Self::Store(store) => store.stream_head(stream).await.map_err(store_failure),
            Self::Client(client) => {
                let mut after = None;
                loop {
                    let page = client.list_streams(after.as_ref()).await?;
                    if let Some(listed) = page.streams.iter().find(|listed| listed.stream == stream) {
                        return Ok(Some(listed.head));
                    }
                    match page.streams.last() {
                        Some(last) if page.more => after = Some(last.stream.clone()),
                        Some(_) | None => return Ok(None),
                    }
                }
            }
        }
    }

    async fn scan_events(&self, stream: StreamId, mut after: Seq, mut each: EventVisitor) -> CliResult<()> {
        let client = match self {
            Self::Store(store) => return store.scan_events(stream, after, each).await.map_err(store_failure),
            Self::Client(client) => client,
        };
        loop {
            let page = client.list_stream_events(&stream, after, None).await?;
            if page.events.iter().any(|event| each(&event.as_event_ref()).is_break()) || !page.more {
                return Ok(());
            }
            let Some(last) = page.events.last() else { return Ok(()) };
            after = last.seq;
        }
    }

    async fn find_present_blobs(&self, hashes: Vec<BlobHash>) -> CliResult<Vec<BlobHash>> {
        match self {
            Self::Store(store) => store.find_present_blobs(hashes).await.map_err(store_failure),
            Self::Client(client) => {
                let missing: HashSet<BlobHash> = client.missing_blobs(&hashes).await?.into_iter().collect();
                Ok(hashes.into_iter().filter(|hash| !missing.contains(hash)).collect())
            }
        }
    }
}

/// Splits a stream up to `until` into pages.
fn split_into_pages(run: RunId, until: Seq) -> impl Iterator<Item = StreamRange> {
    let starts = (0..until.0).step_by(PAGE_EVENTS as usize);
    starts.map(move |after| StreamRange { run, after: Seq(after), until })
}

/// Reads a run's complete history and folds it.
pub(crate) async fn fold_run(client: &CoordinatorClient, run: RunId) -> CliResult<RunState> {
    let mut state = RunState::default();
    for event in client.all_events(run, HistoryScope::WithAncestors).await? {
        state.apply_envelope(&event).fail_with(ExitKind::Verification, || {
            format!("the log of run {} cannot be folded; `docket verify {run}` shows details", run.short())
        })?;
    }
    Ok(state)
}

/// Returns the configuration a run pinned at its start.
pub(crate) fn started_config(history: &FoldedRun, run: RunId) -> CliResult<&RunStarted> {
    history.state().pins.as_deref().ok_or_else(|| {
        let message =
            format!("run {} has not started yet; `docket follow {}` waits for it", run.short(), run.short());
        CliError::new(ExitKind::Refused, message)
    })
}

/// Reads a run's complete history, split into turns.
pub(crate) async fn read_folded_run(client: &CoordinatorClient, run: RunId) -> CliResult<FoldedRun> {
    FoldedRun::from_events(client.all_events(run, HistoryScope::WithAncestors).await?)
        .fail_with(ExitKind::Verification, || {
            format!("the log of run {} cannot be folded; `docket verify {run}` shows details", run.short())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_every_event_once() {
        let run = RunId(uuid::Uuid::from_u128(1));
        let page = u64::from(PAGE_EVENTS);
        for (until, count) in [(0, 0), (1, 1), (page, 1), (page + 1, 2), (page * 3, 3)] {
            let parts: Vec<StreamRange> = split_into_pages(run, Seq(until)).collect();
            assert_eq!(parts.len(), count, "{until}");
            for (nth, part) in parts.iter().enumerate() {
                assert_eq!((part.after.0, part.until.0), (nth as u64 * page, until));
            }
        }
    }
}
