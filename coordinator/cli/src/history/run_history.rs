//! Implements the history routes of the coordinator in this process (except the timeline).
//!
//! Reads contents through the coordinator's own API, like the commands `replay`, `cat`, `diff` and `export`;
//! writes only the cache of bases. The bases of the most recently viewed runs are cached.

mod queries;
mod single_flight;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use docket_coordinator::{
    history_cache::CachedRun,
    history_provider::{ContentAccess, ExportedRun, HistoryFuture, HistoryProvider, HistoryViewError},
};
use docket_schema::{
    api::{DiffQuery, DiffView, ExportFormat, FileView, FilesQuery, ProblemCode, TurnResponse},
    ids::RunId,
};
use docket_worker::{
    client::CoordinatorClient,
    secret::Secret,
    workspace::{BaseObjects, ensure_cached_base},
};
use single_flight::SingleFlight;

use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::error::{CauseDisplay, CliError, CliResult, ExitKind, FailWith as _},
};

/// Number of cached bases: as many as the coordinator caches runs.
const BASES_MAX: usize = 6;

/// The history service.
pub(crate) struct RunHistoryService {
    client: OnceLock<CoordinatorClient>,
    cache: PathBuf,
    scratch: PathBuf,
    /// The base of each run, which never changes; most recently used first.
    bases: Mutex<VecDeque<(RunId, Arc<SingleFlight<BaseObjects>>)>>,
}

impl std::fmt::Debug for RunHistoryService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl RunHistoryService {
    /// Creates the service of this process; it works once [`RunHistoryService::set_coordinator`] was called.
    pub(crate) fn new(cx: &CliContext) -> CliResult<Self> {
        Ok(Self {
            client: OnceLock::new(),
            cache: cx.home.ensure_folder("cache")?,
            scratch: cx.home.ensure_folder("scratch")?,
            bases: Mutex::default(),
        })
    }

    /// Sets the address of the coordinator in this process.
    pub(crate) fn set_coordinator(&self, address: &str, token: Secret) -> CliResult<()> {
        // Set once; a second call could only set the same value.
        let _ = self.client.set(CoordinatorClient::new(address, token)?);
        Ok(())
    }

    fn client(&self) -> CliResult<&CoordinatorClient> {
        self.client
            .get()
            .ok_or_else(|| CliError::new(ExitKind::Unreachable, "the coordinator is still starting"))
    }

    /// Returns the cache slot of a run's base.
    fn base_slot(&self, run: RunId) -> Arc<SingleFlight<BaseObjects>> {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        let known = bases.iter().position(|(of, _)| *of == run).and_then(|place| bases.remove(place));
        let (_, base) = known.unwrap_or_else(|| (run, Arc::default()));
        bases.push_front((run, Arc::clone(&base)));
        bases.truncate(BASES_MAX);
        base
    }

    async fn load_base(&self, run: &CachedRun) -> CliResult<Arc<BaseObjects>> {
        let pins = crate::history::lineage::started_config(&run.folded, run.run)?;
        let (client, cache, base) = (self.client()?.clone(), self.cache.clone(), pins.base.clone());
        let place = self.base_slot(run.run);
        // A pack of a whole repository is fetched, written and read; not on a thread that serves requests.
        let made = place.get_or_start(|| {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || {
                Ok(runtime.block_on(ensure_cached_base(&base, &RemoteBlobs(&client), &cache))?)
            })
        });
        made.await.fail_with(ExitKind::Failed, || {
            "cannot read the tree that the run started from; is git installed where the coordinator runs?"
                .to_owned()
        })
    }
}

/// Converts a failure to the API's error.
fn to_history_error(failure: CliError) -> HistoryViewError {
    let code = match failure.exit {
        ExitKind::NotFound => ProblemCode::NotFound,
        ExitKind::Usage => ProblemCode::InvalidRequest,
        ExitKind::Refused => ProblemCode::WrongState,
        ExitKind::Unreachable => ProblemCode::Unavailable,
        ExitKind::Ok
        | ExitKind::Failed
        | ExitKind::Verification
        | ExitKind::EngineMissing
        | ExitKind::Status(_) => {
            tracing::warn!(
                "a run's history cannot be shown: {}",
                failure.format_message(CauseDisplay::Shown)
            );
            ProblemCode::Internal
        }
    };
    HistoryViewError { code, detail: failure.format_message(CauseDisplay::Hidden) }
}

impl HistoryProvider for RunHistoryService {
    fn get_turn(
        &self,
        run: Arc<CachedRun>,
        turn: Option<u32>,
        eyes: ContentAccess,
    ) -> HistoryFuture<'_, TurnResponse> {
        Box::pin(async move { self.query_turn(&run, turn, eyes).await.map_err(to_history_error) })
    }

    fn get_files(&self, run: Arc<CachedRun>, query: FilesQuery) -> HistoryFuture<'_, FileView> {
        Box::pin(async move { self.query_files(&run, query).await.map_err(to_history_error) })
    }

    fn diff_trees(
        &self,
        run: Arc<CachedRun>,
        with: Option<Arc<CachedRun>>,
        query: DiffQuery,
    ) -> HistoryFuture<'_, DiffView> {
        Box::pin(async move { self.query_diff(&run, with.as_deref(), query).await.map_err(to_history_error) })
    }

    fn read_output(&self, run: Arc<CachedRun>, call: String) -> HistoryFuture<'_, Bytes> {
        Box::pin(async move { self.query_output(&run, &call).await.map_err(to_history_error) })
    }

    fn export_run(&self, run: RunId, form: ExportFormat) -> HistoryFuture<'_, ExportedRun> {
        Box::pin(async move { self.query_export(run, form).await.map_err(to_history_error) })
    }
}
