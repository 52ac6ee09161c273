//! Opens the file: pragmas, schema, the writer's connection.

use std::{path::Path, sync::Arc, time::Duration};

use docket_schema::migrations;
use rusqlite::OpenFlags;
use tokio::runtime::Handle;

use super::{CheckpointMode, checkpoint::CheckpointThread, file_permissions, writer::SqliteWriter};
use crate::store::{
    StoreError,
    db::{
        BUSY_MS, CACHE_SIZE, DbConn, DbPool, SqlDialect, SqliteReaders, migrate, sqlite_driver, store_error,
    },
    sql_store::SqlStore,
};

/// Pages after which a commit copies the log back: none, for there is a thread for that ([`super::checkpoint`]).
const CHECKPOINT_PAGES: &str = "0";

/// Bytes that the write-ahead log keeps after a copy.
const WAL_SIZE_LIMIT: &str = "67108864";

/// SQLite's own limit.
const PAGES_MAX: u32 = 4_294_967_294;

/// Prepared statements kept by the writer: more than it has.
const WRITER_STATEMENTS_MAX: usize = 64;

/// Opens, or makes, the database at `path`.
///
/// # Errors
/// [`StoreError`]: the file cannot be opened, is no database of docket, or a newer docket's.
pub async fn open(path: &Path) -> Result<SqlStore, StoreError> {
    open_with_page_limit(path, PAGES_MAX).await
}

/// As [`open`], and the file never grows past `pages` pages of 4 KiB: what does not fit is
/// [`StoreError::Full`].
///
/// # Errors
/// As [`open`].
pub async fn open_with_page_limit(path: &Path, pages: u32) -> Result<SqlStore, StoreError> {
    open_with_options(path, pages, CheckpointMode::BackgroundThread).await
}

/// As [`open`], with or without checkpoints: for benches.
///
/// # Errors
/// As [`open`].
pub async fn open_with_checkpoints(path: &Path, checkpoints: CheckpointMode) -> Result<SqlStore, StoreError> {
    open_with_options(path, PAGES_MAX, checkpoints).await
}

async fn open_with_options(
    path: &Path,
    pages: u32,
    checkpoints: CheckpointMode,
) -> Result<SqlStore, StoreError> {
    file_permissions::restrict_to_owner(path);
    let (file, runtime) = (path.to_owned(), Handle::current());
    // A migration of a large file takes long.
    let migrated = tokio::task::spawn_blocking(move || {
        let mut conn =
            open_writer_connection(&file, pages).map_err(|e| open_error(sqlite_driver::to_sqlx_error(e)))?;
        runtime.block_on(migrate(&mut DbConn::Sqlite(&mut conn), migrations::SQLITE))?;
        Ok::<_, StoreError>(conn)
    });
    let conn = migrated.await.expect("opening a file does not panic")?;
    let checkpointer = CheckpointThread::start(path, checkpoints).map_err(open_error)?;
    let writer = SqliteWriter::new(conn, checkpointer).await?;
    let readers = Arc::new(SqliteReaders::new(path.to_owned()));
    SqlStore::start(DbPool::Sqlite(readers), vec![writer])
}

/// The error of an opening. Its statements are always the same: if SQLite rejects one, the file is to blame. That is the
/// only sign of a schema whose text was altered.
pub(super) fn open_error(source: sqlx::Error) -> StoreError {
    match store_error(SqlDialect::Sqlite, "opening", source) {
        StoreError::Internal { backend, doing, source } => StoreError::Damaged { backend, doing, source },
        other => other,
    }
}

/// The writer's connection. Readers have theirs set in `sqlite_readers.rs`.
fn open_writer_connection(path: &Path, pages: u32) -> rusqlite::Result<rusqlite::Connection> {
    let conn = rusqlite::Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(Duration::from_millis(BUSY_MS))?;
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = {JOURNAL_BYTES}; \
         PRAGMA max_page_count = {pages}; PRAGMA cache_size = {CACHE_SIZE};"
    ))?;
    conn.set_prepared_statement_cache_capacity(WRITER_STATEMENTS_MAX);
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is acknowledged is on the disk, whatever settings the file was opened with before.
    #[test]
    fn writer_syncs_every_commit() {
        const FULL: i64 = 2;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("docket.db");
        rusqlite::Connection::open(&path)
            .and_then(|conn| {
                conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE t (i)")
            })
            .expect("makes");
        let conn = open_writer_connection(&path, PAGES_MAX).expect("opens");
        let read = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!((read("synchronous"), read("foreign_keys")), (Ok(FULL), Ok(1)));
        let mode = conn.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
        assert_eq!(mode.as_deref(), Ok("wal"));
    }
}
