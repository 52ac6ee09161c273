//! Opening of a SQLite database: pragmas, schema, the writer's connection.

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

/// Automatic checkpoints are disabled, since a separate thread does them ([`super::checkpoint`]).
const CHECKPOINT_PAGES: &str = "0";

/// Size that the write-ahead log keeps after a checkpoint, in bytes.
const WAL_SIZE_LIMIT: &str = "67108864";

/// SQLite's own limit.
const PAGES_MAX: u32 = 4_294_967_294;

/// Prepared statements cached by the writer: more than it has.
const WRITER_STATEMENTS_MAX: usize = 64;

/// Opens or creates the database at `path`.
///
/// # Errors
/// [`StoreError`] if the file cannot be opened, is not a docket database, or belongs to a newer docket.
pub async fn open(path: &Path) -> Result<SqlStore, StoreError> {
    open_with_page_limit(path, PAGES_MAX).await
}

/// Like [`open`], with a file that never grows past `pages` pages of 4 KiB: writes beyond that fail with
/// [`StoreError::Full`].
///
/// # Errors
/// Like [`open`].
pub async fn open_with_page_limit(path: &Path, pages: u32) -> Result<SqlStore, StoreError> {
    open_with_options(path, pages, CheckpointMode::BackgroundThread).await
}

/// Like [`open`], with or without checkpoints, for benchmarks.
///
/// # Errors
/// Like [`open`].
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
    // Migrating a large file takes long.
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

/// Converts an error of opening. The statements are always the same, so if SQLite rejects one, the file is to
/// blame. That is the only sign of a schema whose text was altered.
pub(super) fn open_error(source: sqlx::Error) -> StoreError {
    match store_error(SqlDialect::Sqlite, "opening", source) {
        StoreError::Internal { backend, doing, source } => StoreError::Damaged { backend, doing, source },
        other => other,
    }
}

/// Opens the writer's connection. Readers are set up in `sqlite_readers.rs`.
fn open_writer_connection(path: &Path, pages: u32) -> rusqlite::Result<rusqlite::Connection> {
    let conn = rusqlite::Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(Duration::from_millis(BUSY_MS))?;
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}; \
         PRAGMA max_page_count = {pages}; PRAGMA cache_size = {CACHE_SIZE};"
    ))?;
    conn.set_prepared_statement_cache_capacity(WRITER_STATEMENTS_MAX);
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledged writes are on disk, whatever settings the file was opened with before.
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
