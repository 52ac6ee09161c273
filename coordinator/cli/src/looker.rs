//! Looks back at runs for the coordinator in this process: what its routes of a run's past answer.
//!
//! Reads the log from the store at hand and contents through the coordinator's own API, as the commands do
//! (`replay`, `cat`, `diff`, `export`); writes nothing but the cache of bases. The last few runs that somebody
//! looked at are kept, as far as they had come: moving a slider must not read a log again at each step.

mod answers;
mod once;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use docket_coordinator::{
    past::{Exported, Eyes, Looked, Past, PastError},
    store::Store,
};
use docket_schema::{
    event::Head,
    ids::{RunId, TaskId},
    run::History,
    wire::{DiffQuery, DiffView, ExportForm, FileView, FilesQuery, ProblemCode, Timeline, TurnAnswer},
};
use docket_worker::{
    client::Client,
    secret::Secret,
    workspace::{BaseObjects, cached_base},
};
use once::Once;
use tokio::sync::OnceCell;

use crate::{
    blobs::Remote,
    context::Context,
    fail::{Chain, Exit, FailWith as _, Failure, Outcome},
    lineage::Source,
};

/// Runs that are kept: two beside each other, for a few people.
const HELD_RUNS_MAX: usize = 6;
/// Events of all runs that are kept: some 2 KiB each.
const HELD_EVENTS_MAX: usize = 60_000;

/// See the module.
pub(crate) struct Looker {
    store: Arc<dyn Store>,
    client: OnceLock<Client>,
    cache: PathBuf,
    scratch: PathBuf,
    held: Mutex<VecDeque<Arc<Held>>>,
    /// Held by whoever reads a log: of many who look at one run that goes on, one reads it.
    reading: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Looker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// A run as far as it had come when it was read.
struct Held {
    run: RunId,
    task: TaskId,
    head: Head,
    history: Arc<History>,
    /// Shared by all that was read of the run: what it began from does not change.
    base: Arc<Once<BaseObjects>>,
    /// Made once for all who look.
    timeline: OnceCell<Timeline>,
}

impl Looker {
    /// One for this store; it is of use once [`Looker::reaches`] was called.
    pub(crate) fn new(cx: &Context, store: Arc<dyn Store>) -> Outcome<Self> {
        Ok(Self {
            store,
            client: OnceLock::new(),
            cache: cx.home.folder("cache")?,
            scratch: cx.home.folder("scratch")?,
            held: Mutex::new(VecDeque::new()),
            reading: tokio::sync::Mutex::new(()),
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

    /// The run as it stands now.
    async fn held(&self, run: RunId) -> Outcome<Arc<Held>> {
        let view = self.store.run(run).await.map_err(anyhow::Error::from)?;
        let view = view.ok_or_else(|| Failure::new(Exit::NotFound, format!("there is no run {run}")))?;
        if let Some(held) = self.kept(run, |held| held.head == view.head) {
            return Ok(held);
        }
        let _reading = self.reading.lock().await;
        if let Some(held) = self.kept(run, |held| held.head.seq >= view.head.seq) {
            return Ok(held);
        }
        let events = Source::Store(Arc::clone(&self.store)).history(run).await?;
        let own = events.iter().rfind(|event| event.stream == docket_schema::ids::StreamId::Run(run));
        let head = own.map_or(view.head, |event| Head { seq: event.seq, hash: event.hash });
        let read =
            tokio::task::spawn_blocking(move || History::read(events)).await.map_err(anyhow::Error::from)?;
        let history = read.fail_with(Exit::Verification, || {
            format!("the log of run {} cannot be folded; `docket verify {run}` says more", run.short())
        })?;
        let base = self.kept(run, |_| true).map(|held| Arc::clone(&held.base)).unwrap_or_default();
        let history = Arc::new(history);
        let held = Held { run, task: view.task, head, history, base, timeline: OnceCell::new() };
        Ok(self.keep(Arc::new(held)))
    }

    fn kept(&self, run: RunId, is_good: impl Fn(&Held) -> bool) -> Option<Arc<Held>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|held| held.run == run && is_good(held)).map(Arc::clone)
    }

    fn keep(&self, new: Arc<Held>) -> Arc<Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| held.run != new.run);
        held.push_front(Arc::clone(&new));
        let events = |held: &VecDeque<Arc<Held>>| -> usize {
            held.iter().map(|held| held.history.events().len()).sum()
        };
        while held.len() > HELD_RUNS_MAX || (held.len() > 1 && events(&held) > HELD_EVENTS_MAX) {
            held.pop_back();
        }
        new
    }

    async fn base(&self, held: &Held) -> Outcome<Arc<BaseObjects>> {
        let pins = crate::replay::started(&held.history, held.run)?;
        let (client, cache, base) = (self.client()?.clone(), self.cache.clone(), pins.base.clone());
        // A pack of a whole repository is fetched, written and read: on no thread that answers requests.
        let made = held.base.get(|| {
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
    fn timeline(&self, run: RunId) -> Looked<'_, Timeline> {
        Box::pin(async move { self.timeline_of(run).await.map_err(refused) })
    }

    fn turn(&self, run: RunId, turn: Option<u32>, eyes: Eyes) -> Looked<'_, TurnAnswer> {
        Box::pin(async move { self.turn_of(run, turn, eyes).await.map_err(refused) })
    }

    fn files(&self, run: RunId, query: FilesQuery) -> Looked<'_, FileView> {
        Box::pin(async move { self.files_of(run, query).await.map_err(refused) })
    }

    fn diff(&self, run: RunId, query: DiffQuery) -> Looked<'_, DiffView> {
        Box::pin(async move { self.diff_of(run, query).await.map_err(refused) })
    }

    fn output(&self, run: RunId, call: String) -> Looked<'_, Bytes> {
        Box::pin(async move { self.output_of(run, &call).await.map_err(refused) })
    }

    fn export(&self, run: RunId, form: ExportForm) -> Looked<'_, Exported> {
        Box::pin(async move { self.export_of(run, form).await.map_err(refused) })
    }
}
