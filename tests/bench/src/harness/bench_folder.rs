//! The location of a benchmark: a temporary folder with its stores, a PostgreSQL schema that is dropped
//! afterwards, and a coordinator on loopback in this process.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Context as _;
use docket_coordinator::{
    clock::{self, Clock},
    http::{ApiToken, TokenRole},
    server::{self, RunningServer, ServerConfig},
    store::{
        Store,
        postgres::{self, ScratchSchema},
        sqlite,
    },
};

/// Depth below the bench's folder at which removal is parallelized: group, tree, the tree's own folders.
const PARALLEL_REMOVE_DEPTH: usize = 2;
/// Number of removing threads; more would only wait for the file system's journal.
const REMOVERS_MAX: usize = 4;

/// The folder of one benchmark run.
pub(crate) struct BenchFolder {
    folder: tempfile::TempDir,
}

impl BenchFolder {
    /// Creates a folder under `parent`, whose file system is measured.
    pub(crate) fn new(parent: &Path) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("docket-bench-").tempdir_in(parent).with_context(|| {
                format!("no folder can be made in {}; name another with --store-dir", parent.display())
            })?;
        Ok(Self { folder })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes it with everything in it.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove_contents(self.folder.path(), &[])?;
        self.folder.close()
    }

    /// Creates a subfolder.
    pub(crate) fn create_subfolder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let part = self.folder.path().join(name);
        std::fs::create_dir_all(&part)?;
        Ok(part)
    }
}

/// Removes the contents of `folder` except the named entries, with several threads: a tree of 50,000
/// files takes one thread several seconds.
pub(crate) fn remove_contents(folder: &Path, except: &[&str]) -> io::Result<()> {
    let kept = |path: &Path| path.file_name().is_some_and(|name| except.iter().any(|kept| name == *kept));
    let entries: Vec<PathBuf> = list_children(folder)?.into_iter().filter(|path| !kept(path)).collect();
    // Below groups and their trees there are enough parts for all threads, none of them large.
    let mut parts = entries.clone();
    for _ in 0..PARALLEL_REMOVE_DEPTH {
        let mut below = Vec::new();
        for part in parts {
            if part.is_dir() && !part.is_symlink() {
                below.extend(list_children(&part)?);
            }
        }
        parts = below;
    }
    let left = Mutex::new(parts);
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(REMOVERS_MAX);
    thread::scope(|scope| {
        for _ in 0..threads {
            // Failures here are reported when the whole folder is removed.
            scope.spawn(|| {
                while let Some(part) = next() {
                    drop(remove_path(&part))
                }
            });
        }
    });
    entries.iter().try_for_each(|entry| remove_path(entry))
}

fn list_children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn remove_path(path: &Path) -> io::Result<()> {
    let removed =
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opens a new SQLite store in `folder`.
pub(crate) async fn open_sqlite(folder: &Path) -> anyhow::Result<Arc<dyn Store>> {
    let store = sqlite::open(&folder.join("docket.db")).await.context("the SQLite store cannot be opened")?;
    Ok(Arc::new(store))
}

/// A coordinator over a new SQLite store, and its token.
pub(crate) struct ServedCoordinator {
    pub(crate) running: RunningServer,
    pub(crate) token: String,
    store: Arc<dyn Store>,
}

impl ServedCoordinator {
    /// Starts on a free port of loopback.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        Self::start_with_store(open_sqlite(folder).await?).await
    }

    /// The same over an existing store.
    pub(crate) async fn start_with_store(store: Arc<dyn Store>) -> anyhow::Result<Self> {
        Self::start_with_lease_time(store, None).await
    }

    /// With another lease time than the default.
    pub(crate) async fn start_with_lease_time(
        store: Arc<dyn Store>,
        lease_ms: Option<u64>,
    ) -> anyhow::Result<Self> {
        let token = clock::new_id().simple().to_string();
        let mut config =
            ServerConfig::loopback(0, vec![ApiToken::from_token("bench", TokenRole::Admin, &token)]);
        if let Some(lease_ms) = lease_ms {
            (config.lease_ms, config.heartbeat_ms) = (lease_ms, lease_ms / 3);
        }
        let running = server::start_server(Arc::clone(&store), config, Arc::new(Clock::new()))
            .await
            .context("the coordinator does not start")?;
        Ok(Self { running, token, store })
    }

    pub(crate) async fn shut_down(self) {
        self.running.shutdown().await;
        self.store.close().await;
    }
}

/// Measures in a separate schema on `server`, which is dropped afterwards, so that existing docket tables are
/// untouched.
pub(crate) async fn with_schema(
    server: &str,
    measure: impl AsyncFnOnce(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let schema = ScratchSchema::create(server).await;
    let schema = schema.context("no schema can be made; the user needs CREATE on the database")?;
    let measured = measure(schema.url()).await;
    schema
        .drop_schema()
        .await
        .with_context(|| format!("the schema {} cannot be dropped; drop it by hand", schema.name()))?;
    measured
}

/// Opens the PostgreSQL store in a schema.
pub(crate) async fn open_postgres(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    let store = postgres::open(url).await.context("the PostgreSQL store cannot be opened")?;
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_removed_except_named_entries_and_links_are_not_followed() {
        let place = BenchFolder::new(&std::env::temp_dir()).expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("kept"), "x").expect("written");
        for (group, tree) in [("a", "one"), ("a", "two"), ("b", "one"), ("storage", "one")] {
            let folder = place.create_subfolder(group).expect("made").join(tree).join("deep/er");
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("file"), "x").expect("written");
            fs::write(place.path().join(group).join("log"), "x").expect("written");
        }
        std::os::unix::fs::symlink(outside.path(), place.path().join("a/link")).expect("linked");
        std::os::unix::fs::symlink(outside.path(), place.path().join("a/one/link")).expect("linked");
        remove_contents(place.path(), &["storage"]).expect("removes");
        let left = list_children(place.path()).expect("reads");
        assert_eq!(left, [place.path().join("storage")]);
        assert!(left[0].join("one/deep/er/file").exists() && outside.path().join("kept").exists());
        let path = place.path().to_owned();
        place.remove().expect("removes");
        assert!(!path.exists());
    }
}
