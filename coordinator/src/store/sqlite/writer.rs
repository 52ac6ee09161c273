//! The one writer of a SQLite file. Its working set outlives a batch, so an append reads nothing; the
//! statements still carry the fence, so that a second process on the same file is noticed and not
//! overwritten. It has a thread to itself, which its statements may block.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{checkpoint::Checkpointer, open::unopened};
use crate::store::{
    StoreError,
    db::{
        Conn, DbErrorKind, Dialect, TransactionError, classify_error, copy_error, sqlite_driver, store_error,
    },
    plan::{plan_batch, run_exclusive},
    writer::{
        BatchCommand, Committer, ExclusiveCommand, LOCK_HELD, WorkingSet, WriterProgress, doing, latest_now,
        named_blobs_check, row_writes,
    },
};

/// How long others may hold the file before a write gives up.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// Pause before a busy file is tried again; SQLite has waited itself before it says busy.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How often a batch is decided again after another process's write was noticed.
const STALE_MAX: u32 = 3;

pub(super) struct SqliteWriter {
    conn: Connection,
    set: WorkingSet,
    next_position: u64,
    checkpointer: Checkpointer,
    progress: Arc<WriterProgress>,
}

impl SqliteWriter {
    pub(super) async fn new(conn: Connection, checkpointer: Checkpointer) -> Result<Self, StoreError> {
        let set = WorkingSet::new(Dialect::Sqlite, 0..0);
        let mut writer = Self { conn, set, next_position: 1, checkpointer, progress: Arc::default() };
        writer.reload().await.map_err(unopened)?;
        Ok(writer)
    }

    fn conn(&mut self) -> Conn<'_> {
        Conn::Sqlite(&mut self.conn)
    }

    /// Forgets what was read, and reads where to continue.
    async fn reload(&mut self) -> Result<(), sqlx::Error> {
        let sql = "SELECT coalesce((SELECT max(position) FROM events), 0), coalesce((SELECT max(id) FROM streams), 0)";
        let rows = self.conn().rows(sql, Vec::new()).await?;
        let cell = |at| rows.first().and_then(|row| row.int(at).ok()).unwrap_or(0);
        self.next_position = cell(0).unsigned_abs() + 1;
        self.set = WorkingSet::new(Dialect::Sqlite, cell(1) + 1..i64::MAX);
        Ok(())
    }

    /// One transaction for all, decided again as long as that helps.
    async fn attempt(&mut self, batch: &mut [&mut BatchCommand]) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut stale = 0;
        loop {
            let source = match self.attempt_once(batch).await {
                Ok(()) => return Ok(()),
                Err(TransactionError::Store(error)) => {
                    self.set.clear();
                    return Err(error);
                }
                Err(TransactionError::LimitsUnexpected) => {
                    unreachable!("only PostgreSQL has a lock for limits")
                }
                Err(TransactionError::Sql(source)) => source,
            };
            // Not every error ends a transaction by itself.
            let _ = self.conn().run("ROLLBACK", Vec::new()).await;
            self.set.clear();
            let is_hopeless = match classify_error(Dialect::Sqlite, &source) {
                DbErrorKind::Again => {
                    self.progress.note_obstacle(LOCK_HELD);
                    std::thread::sleep(BUSY_PAUSE);
                    started.elapsed() > BUSY_MAX
                }
                DbErrorKind::Stale => {
                    stale += 1;
                    stale > STALE_MAX
                }
                DbErrorKind::Away
                | DbErrorKind::ReadOnly
                | DbErrorKind::Full
                | DbErrorKind::Damaged
                | DbErrorKind::Ours => true,
            };
            let cannot_reload = |e: &sqlx::Error| classify_error(Dialect::Sqlite, e) != DbErrorKind::Again;
            if is_hopeless || self.reload().await.is_err_and(|e| cannot_reload(&e)) {
                return Err(store_error(Dialect::Sqlite, doing(batch), source));
            }
        }
    }

    async fn attempt_once(&mut self, batch: &mut [&mut BatchCommand]) -> Result<(), TransactionError> {
        self.set.begin(latest_now(batch));
        plan_batch(&mut self.set, &mut Conn::Sqlite(&mut self.conn), batch).await?;
        if !self.set.writes.is_empty() {
            let base = self.next_position;
            self.write(base)?;
            self.next_position += self.set.writes.events.len() as u64;
            batch.iter_mut().for_each(|command| command.place(base));
        }
        Ok(())
    }

    fn write(&mut self, base: u64) -> Result<(), sqlx::Error> {
        let named = named_blobs_check(&self.set.writes);
        let mut writes = row_writes(&mut self.set, base);
        writes.push(named);
        sqlite_driver::run(&self.conn, "BEGIN IMMEDIATE", &[])?;
        for write in &writes {
            if !write.run(&self.conn)? {
                return Err(sqlite_driver::row_is_gone());
            }
        }
        sqlite_driver::run(&self.conn, "COMMIT", &[])?;
        Ok(())
    }

    async fn attempt_exclusive(&mut self, command: &mut ExclusiveCommand) -> Result<(), TransactionError> {
        let mut conn = self.conn();
        conn.run("BEGIN IMMEDIATE", Vec::new()).await?;
        run_exclusive(&mut conn, command).await?;
        conn.run("COMMIT", Vec::new()).await?;
        Ok(())
    }
}

impl Committer for SqliteWriter {
    const HAS_A_THREAD: bool = true;

    fn report_to(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn commit_batch(&mut self, batch: &mut [BatchCommand]) {
        let mut batch: Vec<&mut BatchCommand> = batch.iter_mut().collect();
        let Err(error) = self.attempt(&mut batch).await else { return };
        let one_may_be_at_fault =
            matches!(error, StoreError::Fault { .. } | StoreError::Corrupt { .. } | StoreError::Full { .. });
        if batch.len() == 1 || !one_may_be_at_fault {
            batch.iter_mut().for_each(|command| command.pending_mut().fail(copy_error(&error)));
            return;
        }
        for command in batch {
            let attempted = self.attempt(&mut [&mut *command]).await;
            if let Err(error) = attempted {
                command.pending_mut().fail(error);
            }
        }
    }

    async fn commit_exclusive(&mut self, command: &mut ExclusiveCommand) {
        let started = Instant::now();
        loop {
            let result = self.attempt_exclusive(command).await;
            if command.changes_projections() {
                self.set.clear();
            }
            let Err(error) = result else { return };
            let _ = self.conn().run("ROLLBACK", Vec::new()).await;
            let error = match error {
                TransactionError::Store(error) => error,
                TransactionError::LimitsUnexpected => unreachable!("only PostgreSQL has a lock for limits"),
                TransactionError::Sql(source) => {
                    let is_busy = classify_error(Dialect::Sqlite, &source) == DbErrorKind::Again;
                    if is_busy {
                        self.progress.note_obstacle(LOCK_HELD);
                    }
                    if is_busy && started.elapsed() <= BUSY_MAX {
                        continue;
                    }
                    store_error(Dialect::Sqlite, command.pending().doing(), source)
                }
            };
            command.pending_mut().fail(error);
            return;
        }
    }

    fn between(&mut self) {
        self.checkpointer.committed(&self.conn);
    }

    async fn close(mut self) {
        // Before the last connection goes: that empties the log.
        self.checkpointer.end();
        // What was acknowledged is in the write-ahead log already.
        let _ = self.conn.close();
    }
}
