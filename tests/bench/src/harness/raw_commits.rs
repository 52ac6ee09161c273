//! Raw commits: one connection, one row per commit, nothing else. The baseline for the stores' appends:
//! through the same driver as the store's writer, driven as directly, on the same file system, with the same
//! pragmas and payload.
//!
//! The only SQL outside `store/`; none of it touches docket's own tables.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use sqlx::{Connection as _, PgConnection};

use crate::report::rate_per_second;

/// The same as the SQLite store's; see `store/sqlite/open.rs`.
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000; \
                       PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -32768;";

/// A connection that commits single rows.
pub(crate) enum RawCommits {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
}

impl RawCommits {
    /// Opens a separate database next to the store's.
    pub(crate) fn open_sqlite(folder: &Path) -> anyhow::Result<Self> {
        let conn =
            rusqlite::Connection::open(folder.join("raw.db")).context("the raw database cannot be opened")?;
        conn.execute_batch(PRAGMAS).context("the raw database does not take its pragmas")?;
        conn.execute_batch(
            "CREATE TABLE raw (n INTEGER PRIMARY KEY, hash BLOB NOT NULL, payload TEXT NOT NULL) STRICT",
        )
        .context("the raw table cannot be made")?;
        Ok(Self::Sqlite(conn))
    }

    /// Creates a separate table in the schema that `url` names by its search path.
    pub(crate) async fn open_postgres(url: &str) -> anyhow::Result<Self> {
        let mut conn = PgConnection::connect(url).await.context("the server cannot be reached")?;
        sqlx::query("CREATE TABLE raw (n BIGSERIAL PRIMARY KEY, hash BYTEA NOT NULL, payload TEXT NOT NULL)")
            .execute(&mut conn)
            .await
            .context("the raw table cannot be made")?;
        Ok(Self::Postgres(conn))
    }

    /// Begins a transaction with a snapshot that stays fixed, on PostgreSQL.
    pub(crate) async fn hold_snapshot(&mut self) -> anyhow::Result<()> {
        if let Self::Postgres(conn) = self {
            sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut *conn).await?;
            sqlx::query("SELECT count(*) FROM raw").execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Ends that transaction.
    pub(crate) async fn release_snapshot(&mut self) -> anyhow::Result<()> {
        if let Self::Postgres(conn) = self {
            sqlx::query("COMMIT").execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Commits rows one by one for `time`; returns commits per second.
    pub(crate) async fn measure_commits_per_s(
        &mut self,
        payload: &str,
        time: Duration,
    ) -> anyhow::Result<f64> {
        let hash = blake3::hash(payload.as_bytes());
        match self {
            // The connection replies on this thread, as the writer's does on its own.
            Self::Sqlite(conn) => tokio::task::block_in_place(|| {
                let mut insert = conn.prepare_cached("INSERT INTO raw (hash, payload) VALUES (?, ?)")?;
                let started = Instant::now();
                let mut commits = 0;
                while started.elapsed() < time {
                    insert.execute((&hash.as_bytes()[..], payload))?;
                    commits += 1;
                }
                Ok(rate_per_second(commits, started.elapsed()))
            }),
            Self::Postgres(conn) => {
                let started = Instant::now();
                let mut commits = 0;
                while started.elapsed() < time {
                    let insert = sqlx::query("INSERT INTO raw (hash, payload) VALUES ($1, $2)");
                    insert.bind(&hash.as_bytes()[..]).bind(payload).execute(&mut *conn).await?;
                    commits += 1;
                }
                Ok(rate_per_second(commits, started.elapsed()))
            }
        }
    }

    pub(crate) async fn close(self) {
        // Its data is removed with its folder or schema.
        match self {
            Self::Sqlite(conn) => drop(conn.close()),
            Self::Postgres(conn) => drop(conn.close().await),
        }
    }
}
