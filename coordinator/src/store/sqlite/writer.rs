//! The only writer of a SQLite file. Its working set outlives a batch, so an append reads nothing; the
//! statements still check the fence, so that a second process on the same file is detected and not
//! overwritten. It runs on a dedicated thread, which its statements may block.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{checkpoint::CheckpointThread, open::open_error};
use crate::store::{
    StoreError,
    db::{
        DbConn, DbErrorKind, SqlDialect, TransactionError, classify_error, copy_error, sqlite_driver,
        store_error,
    },
    plan::{plan_batch, run_exclusive},
    writer::{
        BatchCommand, BatchCommitter, ExclusiveCommand, LOCK_HELD, WorkingSet, WriterProgress,
        describe_batch, latest_now, named_blobs_check, row_writes,
    },
};

/// How long other processes may hold the file before a write gives up.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Pause before a busy file is tried again; SQLite itself waits before it reports busy.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How often a batch is decided again after another process's write was detected.
const STALE_RETRIES_MAX: u32 = 3;

pub(super) struct SqliteWriter {
    conn: Connection,
    set: WorkingSet,
    next_position: u64,
    checkpointer: CheckpointThread,
    progress: Arc<WriterProgress>,
}

impl SqliteWriter {
    pub(super) async fn new(conn: Connection, checkpointer: CheckpointThread) -> Result<Self, StoreError> {
        let set = WorkingSet::new(SqlDialect::Sqlite, 0..0);
        let mut writer = Self { conn, set, next_position: 1, checkpointer, progress: Arc::default() };
        writer.reload().await.map_err(open_error)?;
        Ok(writer)
    }

    fn db_conn(&mut self) -> DbConn<'_> {
        DbConn::Sqlite(&mut self.conn)
    }

    /// Clears what was read, and reads where to continue.
    async fn reload(&mut self) -> Result<(), sqlx::Error> {
        let sql = "SELECT coalesce((SELECT max(position) FROM events), 0), coalesce((SELECT max(id) FROM streams), 0)";
        let rows = self.db_conn().query_rows(sql, Vec::new()).await?;
        let cell = |at| rows.first().and_then(|row| row.get_i64(at).ok()).unwrap_or(0);
        self.next_position = cell(0).unsigned_abs() + 1;
        self.set = WorkingSet::new(SqlDialect::Sqlite, cell(1) + 1..i64::MAX);
        Ok(())
    }

    /// Commits the batch in one transaction, decided again as long as that helps.
    async fn commit_with_retries(&mut self, batch: &mut [&mut BatchCommand]) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut stale = 0;
        loop {
            let source = match self.try_commit(batch).await {
                Ok(()) => return Ok(()),
                Err(TransactionError::Store(error)) => {
                    self.set.clear();
                    return Err(error);
                }
                Err(TransactionError::LimitLockMissing) => {
                    unreachable!("only PostgreSQL has a lock for limits")
                }
                Err(TransactionError::Sql(source)) => source,
            };
            // Not every error ends the transaction by itself.
            let _ = self.db_conn().execute("ROLLBACK", Vec::new()).await;
            self.set.clear();
            let is_hopeless = match classify_error(SqlDialect::Sqlite, &source) {
                DbErrorKind::Retryable => {
                    self.progress.record_error(LOCK_HELD);
                    std::thread::sleep(BUSY_PAUSE);
                    started.elapsed() > BUSY_MAX
                }
                DbErrorKind::Stale => {
                    stale += 1;
                    stale > STALE_RETRIES_MAX
                }
                DbErrorKind::Unavailable
                | DbErrorKind::ReadOnly
                | DbErrorKind::Full
                | DbErrorKind::Damaged
                | DbErrorKind::Internal => true,
            };
            let cannot_reload =
                |e: &sqlx::Error| classify_error(SqlDialect::Sqlite, e) != DbErrorKind::Retryable;
            if is_hopeless || self.reload().await.is_err_and(|e| cannot_reload(&e)) {
                return Err(store_error(SqlDialect::Sqlite, describe_batch(batch), source));
            }
        }
    }

    async fn try_commit(&mut self, batch: &mut [&mut BatchCommand]) -> Result<(), TransactionError> {
        self.set.begin_batch(latest_now(batch));
        plan_batch(&mut self.set, &mut DbConn::Sqlite(&mut self.conn), batch).await?;
        if !self.set.writes.is_empty() {
            let base = self.next_position;
            self.write_rows(base)?;
            self.next_position += self.set.writes.events.len() as u64;
            batch.iter_mut().for_each(|command| command.shift_positions(base));
        }
        Ok(())
    }

    fn write_rows(&mut self, base: u64) -> Result<(), sqlx::Error> {
        let named = named_blobs_check(&self.set.writes);
        let mut writes = row_writes(&mut self.set, base);
        writes.push(named);
        sqlite_driver::execute(&self.conn, "BEGIN IMMEDIATE", &[])?;
        for write in &writes {
            if !write.execute_on_sqlite(&self.conn)? {
                return Err(sqlite_driver::row_gone_error());
            }
        }
        sqlite_driver::execute(&self.conn, "COMMIT", &[])?;
        Ok(())
    }

    async fn try_commit_exclusive(&mut self, command: &mut ExclusiveCommand) -> Result<(), TransactionError> {
        let mut conn = self.db_conn();
        conn.execute("BEGIN IMMEDIATE", Vec::new()).await?;
        run_exclusive(&mut conn, command).await?;
        conn.execute("COMMIT", Vec::new()).await?;
        Ok(())
    }
}

impl BatchCommitter for SqliteWriter {
    const NEEDS_THREAD: bool = true;

    fn set_progress(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn commit_batch(&mut self, batch: &mut [BatchCommand]) {
        let mut batch: Vec<&mut BatchCommand> = batch.iter_mut().collect();
        let Err(error) = self.commit_with_retries(&mut batch).await else { return };
        let one_may_be_at_fault = matches!(
            error,
            StoreError::Internal { .. } | StoreError::Corrupt { .. } | StoreError::Full { .. }
        );
        if batch.len() == 1 || !one_may_be_at_fault {
            batch.iter_mut().for_each(|command| command.pending_mut().fail_with(copy_error(&error)));
            return;
        }
        for command in batch {
            let attempted = self.commit_with_retries(&mut [&mut *command]).await;
            if let Err(error) = attempted {
                command.pending_mut().fail_with(error);
            }
        }
    }

    async fn commit_exclusive(&mut self, command: &mut ExclusiveCommand) {
        let started = Instant::now();
        loop {
            let result = self.try_commit_exclusive(command).await;
            if command.invalidates_working_set() {
                self.set.clear();
            }
            let Err(error) = result else { return };
            let _ = self.db_conn().execute("ROLLBACK", Vec::new()).await;
            let error = match error {
                TransactionError::Store(error) => error,
                TransactionError::LimitLockMissing => unreachable!("only PostgreSQL has a lock for limits"),
                TransactionError::Sql(source) => {
                    let is_busy = classify_error(SqlDialect::Sqlite, &source) == DbErrorKind::Retryable;
                    if is_busy {
                        self.progress.record_error(LOCK_HELD);
                    }
                    if is_busy && started.elapsed() <= BUSY_MAX {
                        continue;
                    }
                    store_error(SqlDialect::Sqlite, command.pending().describe_operation(), source)
                }
            };
            command.pending_mut().fail_with(error);
            return;
        }
    }

    fn after_transaction(&mut self) {
        self.checkpointer.after_commit(&self.conn);
    }

    async fn close(mut self) {
        // Before the last connection is closed, since that empties the log.
        self.checkpointer.stop();
        // Acknowledged writes are already in the write-ahead log.
        let _ = self.conn.close();
    }
}
