//! Opening the file: pragmas, schema, the writer's own connection, the readers' pool.

use std::{path::Path, sync::Arc, time::Duration};

use docket_schema::migrations;
use rusqlite::OpenFlags;
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    BUSY_MS, CACHE, Checkpoints, checkpoint::Checkpointer, direct, private, scan::Scans, writer::SqliteWriter,
};
use crate::store::{
    StoreError,
    conn::{Conn, Db, Dialect},
    fault::store_error,
    migrate::migrate,
    sql_store::SqlStore,
};

/// Pages after which a commit copies the log back: none, for there is a thread for that ([`super::checkpoint`]).
const CHECKPOINT_PAGES: &str = "0";

/// Bytes that the write-ahead log keeps after a copy.
const JOURNAL_BYTES: &str = "67108864";

/// SQLite's own limit.
const PAGES_MAX: u32 = 4_294_967_294;

/// Connections for reading. Reads are short; the machine's cores are shared with the writer.
const READERS: u32 = 4;

/// Prepared statements kept by the writer: more than it has.
const STATEMENTS: usize = 64;

/// Opens, or makes, the database at `path`.
///
/// # Errors
/// [`StoreError`]: the file cannot be opened, is no database of docket, or a newer docket's.
pub async fn open(path: &Path) -> Result<SqlStore, StoreError> {
    open_limited(path, PAGES_MAX).await
}

/// As [`open`], and the file never grows past `pages` pages of 4 KiB: what does not fit is
/// [`StoreError::Full`].
///
/// # Errors
/// As [`open`].
pub async fn open_limited(path: &Path, pages: u32) -> Result<SqlStore, StoreError> {
    open_as(path, pages, Checkpoints::Beside).await
}

/// As [`open`], with or without checkpoints: for benches.
///
/// # Errors
/// As [`open`].
pub async fn open_with(path: &Path, checkpoints: Checkpoints) -> Result<SqlStore, StoreError> {
    open_as(path, PAGES_MAX, checkpoints).await
}

/// Of all connections but the writer's own.
fn options(path: &Path, pages: u32) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_millis(BUSY_MS))
        .foreign_keys(true)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", JOURNAL_BYTES)
        .pragma("max_page_count", pages.to_string())
        .pragma("cache_size", CACHE)
        .disable_statement_logging()
}

async fn open_as(path: &Path, pages: u32, checkpoints: Checkpoints) -> Result<SqlStore, StoreError> {
    private::for_its_owner_only(path);
    let options = options(path, pages);
    let mut first = SqliteConnection::connect_with(&options).await.map_err(unopened)?;
    migrate(&mut Conn::Sqlite(&mut first), migrations::SQLITE).await?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .connect_with(options.pragma("query_only", "ON"))
        .await
        .map_err(unopened)?;
    let own = own(path, pages).map_err(|e| unopened(direct::failed(e)))?;
    let checkpointer = Checkpointer::start(path, checkpoints).map_err(unopened)?;
    let committer = SqliteWriter::new(own, checkpointer).await?;
    // Not before the others are there: the last to go ends the write-ahead log.
    drop(first.close().await);
    let scans = Arc::new(Scans::of(path.to_owned()));
    SqlStore::start(Db::Sqlite { pool: readers, scans }, vec![committer])
}

/// What is asked at an opening is always the same: where SQLite finds fault with it, the file is to blame. A schema whose
/// text was altered is told so, and by no other code.
pub(super) fn unopened(source: sqlx::Error) -> StoreError {
    match store_error(Dialect::Sqlite, "opening", source) {
        StoreError::Fault { backend, doing, source } => StoreError::Damaged { backend, doing, source },
        other => other,
    }
}

/// The writer's own connection, set as the others are.
fn own(path: &Path, pages: u32) -> rusqlite::Result<rusqlite::Connection> {
    let conn = rusqlite::Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(Duration::from_millis(BUSY_MS))?;
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = {JOURNAL_BYTES}; \
         PRAGMA max_page_count = {pages}; PRAGMA cache_size = {CACHE};"
    ))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is acknowledged is on the disk: whatever the file, or its journal, was opened with before.
    #[tokio::test]
    async fn the_writer_and_the_readers_sync_every_commit() {
        const FULL: i64 = 2;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("docket.db");
        rusqlite::Connection::open(&path)
            .and_then(|conn| {
                conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE t (i)")
            })
            .expect("makes");
        let conn = own(&path, PAGES_MAX).expect("opens");
        let read = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!((read("synchronous"), read("foreign_keys")), (Ok(FULL), Ok(1)));
        let mode = conn.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
        assert_eq!(mode.as_deref(), Ok("wal"));
        let pool = sqlx::SqlitePool::connect_with(options(&path, PAGES_MAX)).await.expect("opens");
        let of_pool: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&pool).await.expect("reads");
        assert_eq!(of_pool, FULL);
        pool.close().await;
    }
}
