//! Where measurements take place: a folder that goes with them, stores in it, a schema on the server that
//! is dropped afterwards, and a coordinator on loopback.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use docket_coordinator::{
    clock::{self, Clock},
    http::{ApiToken, Role},
    server::{self, Running, ServerConfig},
    store::{Store, postgres, sqlite},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// A folder of one run of the bench.
pub(super) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A new folder under `parent`: what is measured is its file system.
    pub(super) fn new(parent: &Path) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("docket-bench-").tempdir_in(parent).with_context(|| {
                format!("no folder can be made in {}; name another with --store-dir", parent.display())
            })?;
        Ok(Self { folder })
    }

    /// A folder in it.
    pub(super) fn part(&self, name: &str) -> anyhow::Result<PathBuf> {
        let part = self.folder.path().join(name);
        std::fs::create_dir_all(&part)?;
        Ok(part)
    }
}

/// A fresh SQLite store in `folder`.
pub(super) async fn sqlite_in(folder: &Path) -> anyhow::Result<Arc<dyn Store>> {
    let store = sqlite::open(&folder.join("docket.db")).await.context("the SQLite store cannot be opened")?;
    Ok(Arc::new(store))
}

/// A coordinator over a fresh SQLite store, and its token.
pub(super) struct Served {
    pub(super) running: Running,
    pub(super) token: String,
    store: Arc<dyn Store>,
}

impl Served {
    /// Starts on a free port of loopback.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let store = sqlite_in(folder).await?;
        let token = clock::new_id().simple().to_string();
        let config = ServerConfig::loopback(0, vec![ApiToken::of("bench", Role::Admin, &token)]);
        let running = server::start(Arc::clone(&store), config, Arc::new(Clock::new()))
            .await
            .context("the coordinator does not start")?;
        Ok(Self { running, token, store })
    }

    /// Ends it.
    pub(super) async fn end(self) {
        self.running.shutdown().await;
        self.store.close().await;
    }
}

/// A schema of its own on a server: docket's tables of other users are not touched.
pub(super) struct PgSchema {
    url: String,
    name: String,
}

impl PgSchema {
    /// Makes it.
    pub(super) async fn new(url: &str) -> anyhow::Result<Self> {
        let name = format!("docket_bench_{}", clock::new_id().simple());
        let mut conn = PgConnection::connect(url).await.context("the server cannot be reached")?;
        sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {name}")))
            .execute(&mut conn)
            .await
            .context("no schema can be made; the user needs CREATE on the database")?;
        drop(conn.close().await);
        Ok(Self { url: url.to_owned(), name })
    }

    /// The server's address with the schema as search path.
    pub(super) fn url(&self) -> String {
        let mark = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{mark}options=-c%20search_path%3D{}", self.url, self.name)
    }

    /// Drops it with all it holds.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        let mut conn = PgConnection::connect(&self.url).await.context("the server cannot be reached")?;
        sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.name)))
            .execute(&mut conn)
            .await
            .with_context(|| format!("the schema {} cannot be dropped; drop it by hand", self.name))?;
        drop(conn.close().await);
        Ok(())
    }
}

/// The PostgreSQL store in a schema.
pub(super) async fn postgres_at(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    let store = postgres::open(url).await.context("the PostgreSQL store cannot be opened")?;
    Ok(Arc::new(store))
}
