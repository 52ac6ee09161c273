//! Looks back at runs for the coordinator in this process: what its routes of a run's past answer, but for the timeline.
//!
//! Reads contents through the coordinator's own API, as the commands do (`replay`, `cat`, `diff`, `export`); writes nothing
//! but the cache of bases. The bases of the runs that were looked at last are kept.

mod answers;
mod once;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use docket_coordinator::{
    history::CachedRun,
    past::{Exported, Eyes, Looked, Past, PastError},
};
use docket_schema::{
    ids::RunId,
    wire::{DiffQuery, DiffView, ExportForm, FileView, FilesQuery, ProblemCode, TurnAnswer},
};
use docket_worker::{
    client::Client,
    secret::Secret,
    workspace::{BaseObjects, cached_base},
};
use once::Once;

use crate::{
    context::Context,
    history::blobs::Remote,
    output::fail::{Chain, Exit, FailWith as _, Failure, Outcome},
};

/// Bases that are kept: as many as the coordinator keeps runs.
const BASES_MAX: usize = 6;

/// See the module.
pub(crate) struct Looker {
    client: OnceLock<Client>,
    cache: PathBuf,
    scratch: PathBuf,
    /// What each run began from, which does not change; the one looked at last is first.
    bases: Mutex<VecDeque<(RunId, Arc<Once<BaseObjects>>)>>,
}

impl std::fmt::Debug for Looker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Looker {
    /// One for this process; it is of use once [`Looker::reaches`] was called.
    pub(crate) fn new(cx: &Context) -> Outcome<Self> {
        Ok(Self {
            client: OnceLock::new(),
            cache: cx.home.folder("cache")?,
            scratch: cx.home.folder("scratch")?,
            bases: Mutex::default(),
        })
    }

    /// Says where the coordinator in this process answers.
    pub(crate) fn reaches(&self, address: &str, token: Secret) -> Outcome<()> {
        // Said once; a second time could only be the same.
        let _ = self.client.set(Client::new(address, token)?);
        Ok(())
    }

    fn client(&self) -> Outcome<&Client> {
        self.client.get().ok_or_else(|| Failure::new(Exit::Unreachable, "the coordinator is just starting"))
    }

    /// The place of the base of a run.
    fn place(&self, run: RunId) -> Arc<Once<BaseObjects>> {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        let known = bases.iter().position(|(of, _)| *of == run).and_then(|place| bases.remove(place));
        let (_, base) = known.unwrap_or_else(|| (run, Arc::default()));
        bases.push_front((run, Arc::clone(&base)));
        bases.truncate(BASES_MAX);
        base
    }

    async fn base(&self, run: &CachedRun) -> Outcome<Arc<BaseObjects>> {
        let pins = crate::history::lineage::started(&run.folded, run.run)?;
        let (client, cache, base) = (self.client()?.clone(), self.cache.clone(), pins.base.clone());
        let place = self.place(run.run);
        // A pack of a whole repository is fetched, written and read: on no thread that answers requests.
        let made = place.get(|| {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || {
                Ok(runtime.block_on(cached_base(&base, &Remote(&client), &cache))?)
            })
        });
        made.await.fail_with(Exit::Failed, || {
            "the tree that the run started from cannot be read; is git installed where the coordinator runs?".to_owned()
        })
    }
}

/// A failure as the API says it.
fn refused(failure: Failure) -> PastError {
    let code = match failure.exit {
        Exit::NotFound => ProblemCode::NotFound,
        Exit::Usage => ProblemCode::InvalidRequest,
        Exit::Refused => ProblemCode::WrongState,
        Exit::Unreachable => ProblemCode::Unavailable,
        Exit::Ok | Exit::Failed | Exit::Verification | Exit::EngineMissing | Exit::Status(_) => {
            tracing::warn!("a run's past cannot be shown: {}", failure.text(Chain::Shown));
            ProblemCode::Internal
        }
    };
    PastError { code, detail: failure.text(Chain::Hidden) }
}

impl Past for Looker {
    fn turn(&self, run: Arc<CachedRun>, turn: Option<u32>, eyes: Eyes) -> Looked<'_, TurnAnswer> {
        Box::pin(async move { self.turn_of(&run, turn, eyes).await.map_err(refused) })
    }

    fn files(&self, run: Arc<CachedRun>, query: FilesQuery) -> Looked<'_, FileView> {
        Box::pin(async move { self.files_of(&run, query).await.map_err(refused) })
    }

    fn diff(
        &self,
        run: Arc<CachedRun>,
        with: Option<Arc<CachedRun>>,
        query: DiffQuery,
    ) -> Looked<'_, DiffView> {
        Box::pin(async move { self.diff_of(&run, with.as_deref(), query).await.map_err(refused) })
    }

    fn output(&self, run: Arc<CachedRun>, call: String) -> Looked<'_, Bytes> {
        Box::pin(async move { self.output_of(&run, &call).await.map_err(refused) })
    }

    fn export(&self, run: RunId, form: ExportForm) -> Looked<'_, Exported> {
        Box::pin(async move { self.export_of(run, form).await.map_err(refused) })
    }
}
