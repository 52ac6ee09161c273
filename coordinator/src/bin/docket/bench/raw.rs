//! Raw commits: one connection, one row a commit, nothing else. What the stores' appends are compared
//! with: through the same driver, on the same file system, with the same pragmas and payload.
//!
//! The only SQL outside `store/`, and none of it touches docket's own tables.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::stats::rate;

/// As the SQLite store has them; see `store/sqlite/open.rs`.
const CHECKPOINT_PAGES: &str = "8000";
const JOURNAL_BYTES: &str = "67108864";

/// A connection that commits single rows.
pub(super) enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    /// A database of its own beside the store's.
    pub(super) async fn sqlite(folder: &Path) -> anyhow::Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(folder.join("raw.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .pragma("journal_size_limit", JOURNAL_BYTES)
            .disable_statement_logging();
        let mut conn =
            SqliteConnection::connect_with(&options).await.context("the raw database cannot be opened")?;
        sqlx::query(
            "CREATE TABLE raw (n INTEGER PRIMARY KEY, hash BLOB NOT NULL, payload TEXT NOT NULL) STRICT",
        )
        .execute(&mut conn)
        .await
        .context("the raw table cannot be made")?;
        Ok(Self::Sqlite(conn))
    }

    /// A table of its own in the schema that `url` names by its search path.
    pub(super) async fn postgres(url: &str) -> anyhow::Result<Self> {
        let mut conn = PgConnection::connect(url).await.context("the server cannot be reached")?;
        sqlx::query("CREATE TABLE raw (n BIGSERIAL PRIMARY KEY, hash BYTEA NOT NULL, payload TEXT NOT NULL)")
            .execute(&mut conn)
            .await
            .context("the raw table cannot be made")?;
        Ok(Self::Postgres(conn))
    }

    /// Commits rows one by one for `time`; commits per second.
    pub(super) async fn commits_per_s(&mut self, payload: &str, time: Duration) -> anyhow::Result<f64> {
        let hash = blake3::hash(payload.as_bytes());
        let started = Instant::now();
        let mut commits = 0;
        while started.elapsed() < time {
            match self {
                Self::Sqlite(conn) => {
                    let insert = sqlx::query("INSERT INTO raw (hash, payload) VALUES (?, ?)");
                    insert.bind(&hash.as_bytes()[..]).bind(payload).execute(conn).await?;
                }
                Self::Postgres(conn) => {
                    let insert = sqlx::query("INSERT INTO raw (hash, payload) VALUES ($1, $2)");
                    insert.bind(&hash.as_bytes()[..]).bind(payload).execute(conn).await?;
                }
            }
            commits += 1;
        }
        Ok(rate(commits, started.elapsed()))
    }

    /// Ends the connection.
    pub(super) async fn close(self) {
        // What it wrote is thrown away with its folder or schema.
        match self {
            Self::Sqlite(conn) => drop(conn.close().await),
            Self::Postgres(conn) => drop(conn.close().await),
        }
    }
}
