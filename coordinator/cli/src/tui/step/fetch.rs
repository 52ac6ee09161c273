//! What the screen lacks, fetched or worked out beside it: one task each, a few at a time.
//!
//! Reads blobs, the cached base and the runs at hand; writes nothing but that cache.

use crate::history::blobs::Beside;
use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkPath},
    history::FoldedRun,
    run::Overlay,
    snapshot::{EntryKind, Manifest},
};
use docket_worker::{
    client::Client,
    replay::rebuild,
    run::Material,
    workspace::{BaseObjects, Contents, cached_base, diff_manifests},
};
use tokio::sync::OnceCell;

use super::{
    compare, find,
    run::Run,
    shelf::{Loaded, Place, Request, Shelf, Side, Want},
};
use crate::history::blobs::Remote;

/// Largest content that is shown, in bytes: nobody reads more on a screen, and each line of it costs memory.
const SHOWN_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Blobs of outputs that one search reads, in bytes; what lies beyond is not searched, and that is said.
const SEARCHED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// See the module. Clones are of the same moment: the runs as they were when it was made.
#[derive(Clone)]
pub(super) struct Fetcher {
    /// The coordinator.
    pub(super) client: Client,
    /// Where bases are kept.
    pub(super) cache: PathBuf,
    /// The run.
    pub(super) run: Arc<Run>,
    /// The run beside it.
    pub(super) other: Option<Arc<Run>>,
    /// The base of each, once it was asked for.
    pub(super) bases: [Arc<OnceCell<Arc<BaseObjects>>>; 2],
}

type Fetched<T = Loaded> = Result<T, String>;

/// An error with its causes, in one line.
fn chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

impl Fetcher {
    /// Fetches one thing; what cannot be had is an answer as well.
    pub(super) async fn fetch(&self, want: &Want) -> Loaded {
        let fetched = match want {
            Want::Blob(blob) => self.blob(blob).await.map(Loaded::Bytes),
            Want::Tree(place) => self.tree(*place).await.map(|tree| Loaded::Tree(Arc::new(tree))),
            Want::Diff(from, to) => self.diff(*from, *to).await,
            Want::File(place, path) => self.file(*place, path).await,
            Want::Request(side, place) => self.request(*side, *place).await,
            Want::Ends(_) => self.away(|fetcher| fetcher.ends()).await,
            Want::Sameness(..) => {
                self.away(|fetcher| match &fetcher.other {
                    Some(other) => Ok(Loaded::Sameness(Arc::new(compare::sameness(&fetcher.run, other)))),
                    None => Err("no other run is loaded".to_owned()),
                })
                .await
            }
            Want::Hits(query, _) => self.hits(query).await,
        };
        fetched.unwrap_or_else(Loaded::Failed)
    }

    /// Long work of the processor, away from the runtime's threads.
    async fn away(&self, work: impl FnOnce(&Self) -> Fetched + Send + 'static) -> Fetched {
        let fetcher = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&fetcher)).await;
        done.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn of(&self, side: Side) -> Fetched<&Arc<Run>> {
        match side {
            Side::This => Ok(&self.run),
            Side::Other => self.other.as_ref().ok_or_else(|| "no other run is loaded".to_owned()),
        }
    }

    async fn blob(&self, blob: &BlobRef) -> Fetched<Bytes> {
        if blob.bytes > SHOWN_BYTES_MAX {
            return Err(format!(
                "it has {} bytes, more than the {SHOWN_BYTES_MAX} that are shown",
                blob.bytes
            ));
        }
        self.client.get_blob(blob).await.map_err(chain)
    }

    async fn base(&self, side: Side) -> Fetched<Arc<BaseObjects>> {
        let run = self.of(side)?;
        let pins = run.history.pins().ok_or("the run has not started")?;
        let cell = &self.bases[usize::from(side == Side::Other)];
        let made = cell.get_or_try_init(|| async {
            cached_base(&pins.base, &Remote(&self.client), &self.cache).await.map(Arc::new)
        });
        made.await.cloned().map_err(chain)
    }

    /// What differs from the base after so many events.
    fn overlay(&self, place: Place) -> Fetched<Overlay> {
        let run = self.of(place.side)?;
        if place.end > run.events().len() {
            return Err("the run is shorter".to_owned());
        }
        run.history.overlay_after(place.end).map_err(chain)
    }

    async fn tree(&self, place: Place) -> Fetched<Manifest> {
        let base = self.base(place.side).await?;
        let mut tree = base.manifest().clone();
        for (path, entry) in self.overlay(place)? {
            match entry {
                Some(entry) => tree.entries.insert(path, entry),
                None => tree.entries.remove(&path),
            };
        }
        Ok(tree)
    }

    /// Only paths that a snapshot names can differ, unless the bases do.
    async fn diff(&self, from: Place, to: Place) -> Fetched {
        let (old_base, new_base) = (self.base(from.side).await?, self.base(to.side).await?);
        let (old, new) = (self.overlay(from)?, self.overlay(to)?);
        let mut paths: Vec<&WorkPath> = old.keys().chain(new.keys()).collect();
        if old_base.base().tree != new_base.base().tree {
            paths.extend(old_base.manifest().entries.keys().chain(new_base.manifest().entries.keys()));
        }
        paths.sort_unstable();
        paths.dedup();
        let at = |base: &BaseObjects, overlay: &Overlay, path: &WorkPath| {
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
        let remote = Remote(&self.client);
        let blobs = Beside(Contents::new(&new_base, &remote));
        let contents = Contents::new(&old_base, &blobs);
        let files = diff_manifests(&before, &after, &contents).await.map_err(chain)?;
        Ok(Loaded::Diff(Arc::new(files)))
    }

    async fn file(&self, place: Place, path: &WorkPath) -> Fetched {
        let base = self.base(place.side).await?;
        let entry = match self.overlay(place)?.get(path) {
            Some(entry) => *entry,
            None => base.manifest().entries.get(path).copied(),
        };
        let Some(entry) = entry else { return Err("there is no such file after this turn".to_owned()) };
        match entry.kind {
            EntryKind::Dir => return Err("it is a folder".to_owned()),
            EntryKind::File | EntryKind::Symlink if entry.size > SHOWN_BYTES_MAX => {
                return Err(format!(
                    "it has {} bytes, more than are shown; `docket cat` gives it",
                    entry.size
                ));
            }
            EntryKind::File | EntryKind::Symlink => {}
        }
        let blobs = Remote(&self.client);
        Contents::new(&base, &blobs).read(&entry).await.map(Loaded::Bytes).map_err(chain)
    }

    /// The request at this place, rendered again from everything before it.
    async fn request(&self, side: Side, place: usize) -> Fetched {
        let events = self.of(side)?.events().get(..=place).ok_or("the run is shorter")?;
        let rebuilt = rebuild(events, &Material::new(self.client.clone())).await.map_err(chain)?;
        let rebuilt = rebuilt.ok_or("no request stands there")?;
        Ok(Loaded::Request(Arc::new(Request {
            body: rebuilt.rendered.body,
            hash: rebuilt.proof.hash,
            recorded: rebuilt.asked.request,
        })))
    }

    fn ends(&self) -> Fetched {
        let history = FoldedRun::read(self.run.events().to_vec()).map_err(chain)?;
        let ended = history.turns().iter().filter(|span| span.end.is_some()).map(|span| span.turn);
        Ok(Loaded::Ends(Arc::new(ended.collect())))
    }

    /// Searches twice: to learn what lies out of line, and with it at hand.
    async fn hits(&self, query: &str) -> Fetched {
        let text = query.to_owned();
        let (run, asked) = (Arc::clone(&self.run), text.clone());
        let first = tokio::task::spawn_blocking(move || find::hits(&run, &asked, &Shelf::default()));
        let (hits, wants) = first.await.map_err(|error| error.to_string())?;
        if wants.is_empty() {
            return Ok(Loaded::Hits(Arc::new(hits)));
        }
        let mut shelf = Shelf::default();
        let mut bytes = 0;
        for want in wants {
            if let Want::Blob(blob) = &want
                && !shelf.has(&want)
                && bytes + blob.bytes <= SEARCHED_BYTES_MAX
            {
                bytes += blob.bytes;
                let loaded = self.blob(blob).await.map_or_else(Loaded::Failed, Loaded::Bytes);
                shelf.put(want, loaded);
            }
        }
        let run = Arc::clone(&self.run);
        let second = tokio::task::spawn_blocking(move || find::hits(&run, &text, &shelf).0);
        Ok(Loaded::Hits(Arc::new(second.await.map_err(|error| error.to_string())?)))
    }
}
