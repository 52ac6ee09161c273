//! Looks back at runs for the coordinator in this process: what its routes of a run's past answer, but for the timeline.
//!
//! Reads contents through the coordinator's own API, as the commands do (`replay`, `cat`, `diff`, `export`); writes nothing
//! but the cache of bases. The bases of the runs that were looked at last are kept.

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

/// Bases that are kept: as many as the coordinator keeps runs.
const BASES_MAX: usize = 6;

/// See the module.
pub(crate) struct RunHistoryService {
    client: OnceLock<CoordinatorClient>,
    cache: PathBuf,
    scratch: PathBuf,
    /// What each run began from, which does not change; the one looked at last is first.
    bases: Mutex<VecDeque<(RunId, Arc<SingleFlight<BaseObjects>>)>>,
}

impl std::fmt::Debug for RunHistoryService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl RunHistoryService {
    /// One for this process; it is of use once [`Looker::reaches`] was called.
    pub(crate) fn new(cx: &CliContext) -> CliResult<Self> {
        Ok(Self {
            client: OnceLock::new(),
            cache: cx.home.ensure_folder("cache")?,
            scratch: cx.home.ensure_folder("scratch")?,
            bases: Mutex::default(),
        })
    }

    /// Says where the coordinator in this process answers.
    pub(crate) fn set_coordinator(&self, address: &str, token: Secret) -> CliResult<()> {
        // Said once; a second time could only be the same.
        let _ = self.client.set(CoordinatorClient::new(address, token)?);
        Ok(())
    }

    fn client(&self) -> CliResult<&CoordinatorClient> {
        self.client
            .get()
            .ok_or_else(|| CliError::new(ExitKind::Unreachable, "the coordinator is just starting"))
    }

    /// The place of the base of a run.
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
        // A pack of a whole repository is fetched, written and read: on no thread that answers requests.
        let made = place.get_or_start(|| {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || {
                Ok(runtime.block_on(ensure_cached_base(&base, &RemoteBlobs(&client), &cache))?)
            })
        });
        made.await.fail_with(ExitKind::Failed, || {
            "the tree that the run started from cannot be read; is git installed where the coordinator runs?".to_owned()
        })
    }
}

/// A failure as the API says it.
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
            tracing::warn!("a run's past cannot be shown: {}", failure.format_message(CauseDisplay::Shown));
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
