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

async fn open_as(path: &Path, pages: u32, checkpoints: Checkpoints) -> Result<SqlStore, StoreError> {
    let sql_error = |source| store_error(Dialect::Sqlite, "opening", source);
    private::for_its_owner_only(path);
    let options = SqliteConnectOptions::new()
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
        .disable_statement_logging();
    let mut first = SqliteConnection::connect_with(&options).await.map_err(sql_error)?;
    migrate(&mut Conn::Sqlite(&mut first), migrations::SQLITE).await?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .connect_with(options.pragma("query_only", "ON"))
        .await
        .map_err(sql_error)?;
    let own = own(path, pages).map_err(|e| sql_error(direct::failed(e)))?;
    let checkpointer = Checkpointer::start(path, checkpoints).map_err(sql_error)?;
    let committer = SqliteWriter::new(own, checkpointer).await?;
    // Not before the others are there: the last to go ends the write-ahead log.
    drop(first.close().await);
    let scans = Arc::new(Scans::of(path.to_owned()));
    SqlStore::start(Db::Sqlite { pool: readers, scans }, vec![committer])
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
