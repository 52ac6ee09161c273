//! Fetches or computes missing content in the background: one task per request, a few at a time.
//!
//! Reads blobs, the cached base and the loaded runs; writes only that cache.

use crate::history::blobs::FallbackBlobs;
use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkspacePath},
    history::FoldedRun,
    run::Overlay,
    snapshot::{EntryKind, Manifest},
};
use docket_worker::{
    client::CoordinatorClient,
    replay::rebuild_request,
    run::BlobCache,
    workspace::{BaseObjects, ContentReader, diff_manifests, ensure_cached_base},
};
use tokio::sync::OnceCell;

use super::{
    comparison,
    content_cache::{ContentCache, ContentRequest, LoadedContent, RebuiltRequest, RunSide, TreePosition},
    run::Run,
    search,
};
use crate::history::blobs::RemoteBlobs;

/// Size limit of content shown, in bytes: more is unreadable on a screen, and each line costs memory.
const SHOWN_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Limit of output blobs read by one search, in bytes; the rest is not searched, and that is reported.
const SEARCHED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Fetches content. Clones share a snapshot of the runs as of its creation.
#[derive(Clone)]
pub(super) struct ContentFetcher {
    pub(super) client: CoordinatorClient,
    /// Where bases are cached.
    pub(super) cache: PathBuf,
    pub(super) run: Arc<Run>,
    /// The run it is compared with.
    pub(super) other: Option<Arc<Run>>,
    /// The base of each run, once requested.
    pub(super) bases: [Arc<OnceCell<Arc<BaseObjects>>>; 2],
}

type FetchResult<T = LoadedContent> = Result<T, String>;

/// Formats an error with its causes on one line.
fn error_chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

impl ContentFetcher {
    /// Fetches one request; a failure is also a result.
    pub(super) async fn fetch(&self, want: &ContentRequest) -> LoadedContent {
        let fetched = match want {
            ContentRequest::Blob(blob) => self.fetch_blob(blob).await.map(LoadedContent::Bytes),
            ContentRequest::Tree(place) => {
                self.tree_at(*place).await.map(|tree| LoadedContent::Tree(Arc::new(tree)))
            }
            ContentRequest::Diff(from, to) => self.diff_trees(*from, *to).await,
            ContentRequest::File(place, path) => self.read_file(*place, path).await,
            ContentRequest::Request(side, place) => self.rebuild_request(*side, *place).await,
            ContentRequest::TurnEnds(_) => self.run_blocking(|fetcher| fetcher.find_turn_ends()).await,
            ContentRequest::Comparison(..) => {
                self.run_blocking(|fetcher| match &fetcher.other {
                    Some(other) => {
                        Ok(LoadedContent::Comparison(Arc::new(comparison::compare_runs(&fetcher.run, other))))
                    }
                    None => Err("no other run is loaded".to_owned()),
                })
                .await
            }
            ContentRequest::SearchHits(query, _) => self.search_run(query).await,
        };
        fetched.unwrap_or_else(LoadedContent::Failed)
    }

    /// Runs CPU-bound work off the runtime's threads.
    async fn run_blocking(&self, work: impl FnOnce(&Self) -> FetchResult + Send + 'static) -> FetchResult {
        let fetcher = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&fetcher)).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn run_for(&self, side: RunSide) -> FetchResult<&Arc<Run>> {
        match side {
            RunSide::This => Ok(&self.run),
            RunSide::Other => self.other.as_ref().ok_or_else(|| "no other run is loaded".to_owned()),
        }
    }

    async fn fetch_blob(&self, blob: &BlobRef) -> FetchResult<Bytes> {
        if blob.bytes > SHOWN_BYTES_MAX {
            return Err(format!("it has {} bytes; the limit is {SHOWN_BYTES_MAX}", blob.bytes));
        }
        self.client.get_blob(blob).await.map_err(error_chain)
    }

    async fn load_base(&self, side: RunSide) -> FetchResult<Arc<BaseObjects>> {
        let run = self.run_for(side)?;
        let pins = run.history.pins().ok_or("the run has not started")?;
        let cell = &self.bases[usize::from(side == RunSide::Other)];
        let made = cell.get_or_try_init(|| async {
            ensure_cached_base(&pins.base, &RemoteBlobs(&self.client), &self.cache).await.map(Arc::new)
        });
        made.await.cloned().map_err(error_chain)
    }

    /// Returns the differences from the base after this number of events.
    fn overlay_at(&self, place: TreePosition) -> FetchResult<Overlay> {
        let run = self.run_for(place.side)?;
        if place.end > run.events().len() {
            return Err("the run is shorter".to_owned());
        }
        run.history.overlay_after(place.end).map_err(error_chain)
    }

    async fn tree_at(&self, place: TreePosition) -> FetchResult<Manifest> {
        let base = self.load_base(place.side).await?;
        let mut tree = base.manifest().clone();
        for (path, entry) in self.overlay_at(place)? {
            match entry {
                Some(entry) => tree.entries.insert(path, entry),
                None => tree.entries.remove(&path),
            };
        }
        Ok(tree)
    }

    /// Only paths in snapshots can differ, unless the bases do.
    async fn diff_trees(&self, from: TreePosition, to: TreePosition) -> FetchResult {
        let (old_base, new_base) = (self.load_base(from.side).await?, self.load_base(to.side).await?);
        let (old, new) = (self.overlay_at(from)?, self.overlay_at(to)?);
        let mut paths: Vec<&WorkspacePath> = old.keys().chain(new.keys()).collect();
        if old_base.base().tree != new_base.base().tree {
            paths.extend(old_base.manifest().entries.keys().chain(new_base.manifest().entries.keys()));
        }
        paths.sort_unstable();
        paths.dedup();
        let at = |base: &BaseObjects, overlay: &Overlay, path: &WorkspacePath| {
            overlay.get(path).copied().unwrap_or_else(|| base.manifest().entries.get(path).copied())
        };
        let (mut before, mut after) = (Manifest::default(), Manifest::default());
        for path in paths {
            let (left, right) = (at(&old_base, &old, path), at(&new_base, &new, path));
            if left != right {
                before.entries.extend(left.map(|entry| (path.clone(), entry)));
                after.entries.extend(right.map(|entry| (path.clone(), entry)));
            }
        }
        let remote = RemoteBlobs(&self.client);
        let blobs = FallbackBlobs(ContentReader::new(&new_base, &remote));
        let contents = ContentReader::new(&old_base, &blobs);
        let files = diff_manifests(&before, &after, &contents).await.map_err(error_chain)?;
        Ok(LoadedContent::Diff(Arc::new(files)))
    }

    async fn read_file(&self, place: TreePosition, path: &WorkspacePath) -> FetchResult {
        let base = self.load_base(place.side).await?;
        let entry = match self.overlay_at(place)?.get(path) {
            Some(entry) => *entry,
            None => base.manifest().entries.get(path).copied(),
        };
        let Some(entry) = entry else { return Err("no such file after this turn".to_owned()) };
        match entry.kind {
            EntryKind::Dir => return Err("it is a folder".to_owned()),
            EntryKind::File | EntryKind::Symlink if entry.size > SHOWN_BYTES_MAX => {
                return Err(format!("it has {} bytes, too many to show; use `docket cat`", entry.size));
            }
            EntryKind::File | EntryKind::Symlink => {}
        }
        let blobs = RemoteBlobs(&self.client);
        ContentReader::new(&base, &blobs)
            .read_entry(&entry)
            .await
            .map(LoadedContent::Bytes)
            .map_err(error_chain)
    }

    /// Rebuilds the request at this index from everything before it.
    async fn rebuild_request(&self, side: RunSide, place: usize) -> FetchResult {
        let events = self.run_for(side)?.events().get(..=place).ok_or("the run is shorter")?;
        let rebuilt =
            rebuild_request(events, &BlobCache::new(self.client.clone())).await.map_err(error_chain)?;
        let rebuilt = rebuilt.ok_or("there is no request")?;
        Ok(LoadedContent::Request(Arc::new(RebuiltRequest {
            body: rebuilt.rendered.body,
            hash: rebuilt.proof.hash,
            recorded: rebuilt.requested.request,
        })))
    }

    fn find_turn_ends(&self) -> FetchResult {
        let history = FoldedRun::from_events(self.run.events().to_vec()).map_err(error_chain)?;
        let ended = history.turns().iter().filter(|span| span.end.is_some()).map(|span| span.turn);
        Ok(LoadedContent::TurnEnds(Arc::new(ended.collect())))
    }

    /// Searches twice: once to find missing blobs, then with them.
    async fn search_run(&self, query: &str) -> FetchResult {
        let text = query.to_owned();
        let (run, asked) = (Arc::clone(&self.run), text.clone());
        let first =
            tokio::task::spawn_blocking(move || search::find_hits(&run, &asked, &ContentCache::default()));
        let (hits, wants) = first.await.map_err(|error| error.to_string())?;
        if wants.is_empty() {
            return Ok(LoadedContent::SearchHits(Arc::new(hits)));
        }
        let mut shelf = ContentCache::default();
        let mut bytes = 0;
        for want in wants {
            if let ContentRequest::Blob(blob) = &want
                && !shelf.contains(&want)
                && bytes + blob.bytes <= SEARCHED_BYTES_MAX
            {
                bytes += blob.bytes;
                let loaded =
                    self.fetch_blob(blob).await.map_or_else(LoadedContent::Failed, LoadedContent::Bytes);
                shelf.insert(want, loaded);
            }
        }
        let run = Arc::clone(&self.run);
        let second = tokio::task::spawn_blocking(move || search::find_hits(&run, &text, &shelf).0);
        Ok(LoadedContent::SearchHits(Arc::new(second.await.map_err(|error| error.to_string())?)))
    }
}
