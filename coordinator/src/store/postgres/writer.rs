//! The writers of a coordinator, each with its own connection and known heads.
//!
//! Appends of holders are sent as one optimistic statement over heads that this coordinator remembers: one
//! round trip, one commit. Appends that this statement did not write, every refusal, and all other commands
//! are decided again with rows locked.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::ids::EventHash;
use sqlx::{Connection as _, PgConnection};

use super::{
    batch_statements::{BatchStatement, batch_statements, fenced_append, single_row, submit_statement},
    optimistic::{is_lock_free_append, is_lock_free_submit},
    server_link::ServerConnector,
};
use crate::store::{
    StoreError,
    db::{
        DbConn, DbErrorKind, PostgresEndpoint, SqlArg, SqlDialect, TransactionError, classify_error,
        copy_error, row::StreamRow, store_error,
    },
    plan::{plan_batch, run_exclusive},
    writer::{
        AvailabilityHints, BatchCommand, BatchCommitter, ExclusiveCommand, LOCK_HELD, LeaseCursor,
        POSITION_BITS, READ_ONLY, UNREACHABLE, WorkingSet, WriterProgress, describe_batch, latest_now,
    },
};

/// How long to wait for an unreachable server.
const SERVER_WAIT_MAX: Duration = Duration::from_secs(10);

const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How often a transaction that lost to another is repeated.
const CONFLICTS_MAX: u32 = 20;

/// How long to wait for a lock of another session, over all tries; each try ends with the session's
/// `lock_timeout`.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// Events per transaction, at most: the range of a position's counter.
const EVENTS_MAX: usize = 1 << POSITION_BITS;

pub(super) struct PgWriter {
    link: ServerConnector,
    endpoint: PostgresEndpoint,
    conn: Option<PgConnection>,
    offset: i64,
    stream_ids: std::ops::Range<i64>,
    /// Scan state of lease requests, for the writer that leases.
    cursor: LeaseCursor,
    grants_leases: bool,
    /// Whether the next leasing transaction should expect a choice under limits.
    expects_limits: bool,
    availability: AvailabilityHints,
    progress: Arc<WriterProgress>,
    /// Heads as this coordinator last saw them; others may have moved them since.
    known_heads: WorkingSet,
}

/// The commands of one transaction with locks.
enum LockedWork<'a, 'b> {
    Batch(&'a mut [&'b mut BatchCommand]),
    Exclusive(&'a mut ExclusiveCommand),
}

impl LockedWork<'_, '_> {
    fn describe_work(&self) -> &'static str {
        match self {
            Self::Batch(batch) => describe_batch(batch),
            Self::Exclusive(command) => command.pending().describe_operation(),
        }
    }
}

/// A commit whose reply was lost. The commands are decided, and their replies are valid if it succeeded.
struct UncertainCommit {
    /// The transaction's id.
    xid: i64,
    /// Position and hash of its first event; `None` if it writes none.
    first_event: Option<(u64, EventHash)>,
}

impl PgWriter {
    /// Without a connection it opens one on demand.
    pub(super) fn new(link: ServerConnector, conn: Option<PgConnection>, offset: i64) -> Self {
        Self {
            endpoint: link.endpoint,
            link,
            conn,
            offset,
            stream_ids: 0..0,
            cursor: LeaseCursor::default(),
            grants_leases: true,
            expects_limits: false,
            availability: AvailabilityHints::default(),
            progress: Arc::default(),
            known_heads: WorkingSet::new_optimistic(SqlDialect::Postgres),
        }
    }

    pub(super) fn sibling_writer(&self) -> Self {
        let new = Self::new(self.link.clone(), None, self.offset);
        Self { grants_leases: false, availability: self.availability.clone(), ..new }
    }

    async fn connect(&mut self) -> Result<DbConn<'_>, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.link.connect().await?);
        }
        Ok(DbConn::Postgres(self.conn.as_mut().expect("it was just made"), self.endpoint))
    }

    /// Commits one transaction with locks, repeated as long as that helps.
    async fn commit_with_locks(&mut self, mut work: LockedWork<'_, '_>) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut conflicts = 0;
        let mut doubt = None;
        loop {
            let Err(error) = self.try_commit_with_locks(&mut work, &mut doubt).await else { return Ok(()) };
            self.note_obstacle(&error);
            self.roll_back().await;
            let source = match error {
                TransactionError::Store(error) => return Err(error),
                TransactionError::LimitLockMissing => {
                    self.expects_limits = true;
                    continue;
                }
                TransactionError::Sql(source) => source,
            };
            let kind = classify_error(SqlDialect::Postgres, &source);
            if kind.is_conflict() && conflicts < CONFLICTS_MAX && started.elapsed() < LOCK_WAIT_MAX {
                conflicts += 1;
            } else if kind.is_connection_error() && started.elapsed() < SERVER_WAIT_MAX {
                tokio::time::sleep(RECONNECT_PAUSE).await;
            } else {
                return Err(store_error(SqlDialect::Postgres, work.describe_work(), source));
            }
        }
    }

    /// Records what kept a try from writing if another try may help, and leaves a server that cannot.
    fn note_obstacle(&mut self, error: &TransactionError) {
        let TransactionError::Sql(source) = error else { return };
        let obstacle = match classify_error(SqlDialect::Postgres, source) {
            DbErrorKind::Retryable => LOCK_HELD,
            DbErrorKind::Unavailable => UNREACHABLE,
            DbErrorKind::ReadOnly => READ_ONLY,
            DbErrorKind::Stale | DbErrorKind::Full | DbErrorKind::Damaged | DbErrorKind::Internal => return,
        };
        self.progress.record_error(obstacle);
        if obstacle == READ_ONLY {
            self.link.failover.note_read_only();
        }
        if obstacle != LOCK_HELD {
            self.conn = None;
        }
    }

    /// Rolls back a failed transaction; a connection that cannot do even that is dropped.
    async fn roll_back(&mut self) {
        if let Some(conn) = &mut self.conn
            && DbConn::Postgres(conn, self.endpoint).execute_batch("ROLLBACK").await.is_err()
        {
            self.conn = None;
        }
    }

    /// Determines whether a commit whose reply was lost succeeded. The transaction's id alone is not enough:
    /// a server that crashed reuses ids of transactions that had not reached its log, and the current owner
    /// of the id may be another coordinator. So the transaction's first event is looked up. A transaction
    /// without events is repeated.
    async fn resolve_uncertain_commit(
        &mut self,
        doubt: &mut Option<UncertainCommit>,
    ) -> Result<bool, TransactionError> {
        let since = Instant::now();
        while let Some(UncertainCommit { xid, first_event: first }) = doubt {
            let mut conn = self.connect().await?;
            let args = vec![SqlArg::Text(xid.to_string())];
            // Asking for the status of an id not assigned since is an error: a freshly assigned id is above
            // all of them. The end of a snapshot is not usable, since it is only above the ended ones and
            // ours may still be in progress beyond it.
            let sql = "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() \
                       THEN pg_xact_status($1::text::xid8) END";
            let mut rows = conn.query_rows_autocommit(sql, args).await?;
            let status = rows.first_mut().and_then(|row| row.get_text_or_null(0).ok()).flatten();
            if status.as_deref() == Some("in progress") {
                // The server has not yet noticed that the connection is gone, which can take long if it is
                // half open.
                if since.elapsed() > SERVER_WAIT_MAX {
                    return Err(sqlx::Error::PoolTimedOut.into());
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
                continue;
            }
            let mut is_written = false;
            if let Some((position, hash)) = first {
                let args = vec![SqlArg::from_u64(*position), SqlArg::Hash(hash.0)];
                let sql = "SELECT count(*) FROM events WHERE position = $1 AND hash = $2";
                let rows = conn.query_rows_autocommit(sql, args).await?;
                is_written = rows.first().ok_or(sqlx::Error::RowNotFound)?.get_i64(0)? > 0;
            }
            *doubt = None;
            return Ok(is_written);
        }
        Ok(false)
    }

    async fn try_commit_with_locks(
        &mut self,
        work: &mut LockedWork<'_, '_>,
        doubt: &mut Option<UncertainCommit>,
    ) -> Result<(), TransactionError> {
        if self.resolve_uncertain_commit(doubt).await? {
            return Ok(());
        }
        let (offset, ids, begin) = (self.offset, self.stream_ids.clone(), self.endpoint.begin_sql());
        let expects_limits = self.expects_limits;
        let mut cursor = std::mem::take(&mut self.cursor);
        if self.grants_leases {
            self.availability.drain_into(&mut cursor);
        }
        let mut conn = self.connect().await?;
        conn.execute_batch(begin).await?;
        let mut set = WorkingSet::new(SqlDialect::Postgres, ids);
        let mut xid = None;
        match work {
            LockedWork::Batch(batch) => {
                set.begin_batch(latest_now(batch));
                set.lease_reads.expects_limits = expects_limits;
                set.cursor = cursor;
                plan_batch(&mut set, &mut conn, batch).await?;
                // A failed transaction leaves no cursor, so the next one scans all flows.
                cursor = std::mem::take(&mut set.cursor);
            }
            LockedWork::Exclusive(command) => {
                run_exclusive(&mut conn, command).await?;
                // The command wrote directly. A transaction that writes nothing leaves nothing in doubt.
                let rows = conn.query_rows("SELECT pg_current_xact_id()::text::bigint", Vec::new()).await?;
                xid = Some(single_row(rows)?.get_i64(0)?);
            }
        }
        let events = set.writes.events.len();
        if events > EVENTS_MAX {
            let what = format!("a transaction of {events} events is too large; send fewer at once");
            return Err(StoreError::Schema { what }.into());
        }
        let first = set.writes.events.first().map(|event| event.hash);
        for BatchStatement { sql, args } in batch_statements(&mut set, offset) {
            xid = Some(single_row(conn.query_rows(&sql, args).await?)?.get_i64(0)?);
        }
        self.stream_ids = set.remaining_stream_ids();
        if set.lease_reads.requests > 0 {
            self.expects_limits = set.lease_reads.depended_on_limits;
        }
        if let Some(xid) = xid {
            let base = self.first_position(xid);
            if let LockedWork::Batch(batch) = work {
                batch.iter_mut().for_each(|command| command.shift_positions(base));
            }
            *doubt = Some(UncertainCommit { xid, first_event: first.map(|hash| (base, hash)) });
        }
        self.connect().await?.execute_batch("COMMIT").await?;
        *doubt = None;
        if xid.is_some() {
            self.known_heads.remember_heads(&mut set);
        }
        if self.grants_leases {
            self.cursor = cursor;
        } else {
            self.availability.publish(cursor);
        }
        Ok(())
    }

    /// Returns the first position of a transaction.
    const fn first_position(&self, xid: i64) -> u64 {
        ((xid + self.offset) << POSITION_BITS).unsigned_abs()
    }

    /// Submits tasks in one statement, which is its own transaction. Returns `false` if they must be decided
    /// again with locks, because something already exists or a blob is missing.
    async fn submit_optimistically(
        &mut self,
        batch: &mut [&mut BatchCommand],
    ) -> Result<bool, TransactionError> {
        let mut set = WorkingSet::for_optimistic_insert(SqlDialect::Postgres, self.stream_ids.clone());
        set.begin_batch(latest_now(batch));
        set.cursor = std::mem::take(&mut self.cursor);
        let (offset, through) = (self.offset, self.endpoint);
        let mut conn = self.connect().await?;
        if through == PostgresEndpoint::Pooler {
            conn.execute_batch(through.begin_sql()).await?;
        }
        plan_batch(&mut set, &mut conn, batch).await?;
        // Also if nothing is written: the cursor then only starts the scan earlier.
        let cursor = std::mem::take(&mut set.cursor);
        let ids = set.remaining_stream_ids();
        let fits = set.writes.events.len() <= EVENTS_MAX;
        let Some(BatchStatement { sql, args }) = submit_statement(&mut set, offset).filter(|_| fits) else {
            self.cursor = cursor;
            self.roll_back().await;
            return Ok(false);
        };
        let answered = conn.query_rows(&sql, args).await;
        self.cursor = cursor;
        // Also if the reply is lost: the server may have committed, and then these ids are used.
        self.stream_ids = ids;
        let row = single_row(answered?)?;
        let (xid, wrote) = (row.get_i64(0)?, row.get_i64(1)? != 0);
        if through == PostgresEndpoint::Pooler {
            self.connect().await?.execute_batch("COMMIT").await?;
        }
        if wrote {
            let base = self.first_position(xid);
            batch.iter_mut().for_each(|command| command.shift_positions(base));
        }
        Ok(wrote)
    }

    /// Tries appends without locks. Afterwards those that were written are decided.
    async fn append_optimistically(
        &mut self,
        batch: &mut [&mut BatchCommand],
    ) -> Result<(), TransactionError> {
        if self.endpoint == PostgresEndpoint::Server {
            return self.append_without_locks(batch).await;
        }
        let begin = self.endpoint.begin_sql();
        self.connect().await?.execute_batch(begin).await?;
        self.append_without_locks(batch).await?;
        let ended = self.connect().await?.execute_batch("COMMIT").await;
        if ended.is_err() {
            // They confirm that the appends were written.
            self.known_heads.clear();
        }
        Ok(ended?)
    }

    async fn append_without_locks(
        &mut self,
        batch: &mut [&mut BatchCommand],
    ) -> Result<(), TransactionError> {
        self.known_heads.begin_batch(latest_now(batch));
        let mut heads =
            std::mem::replace(&mut self.known_heads, WorkingSet::new_optimistic(SqlDialect::Postgres));
        let offset = self.offset;
        let mut conn = self.connect().await?;
        plan_batch(&mut heads, &mut conn, batch).await?;
        let writes = &heads.writes;
        // A changed row of a run, or a new stream, is more than this statement writes.
        if writes.events.is_empty()
            || !writes.runs.is_empty()
            || !writes.queues.is_empty()
            || !writes.budgets.is_empty()
            || writes.streams.values().any(Option::is_none)
        {
            batch.iter_mut().for_each(|command| command.pending_mut().clear_reply());
            return Ok(());
        }
        let statement = fenced_append(&mut heads, offset);
        let rows = conn.query_rows(&statement.sql, statement.args).await?;
        let mut moved = Vec::with_capacity(rows.len());
        let mut base = 0;
        for row in &rows {
            base = self.first_position(row.get_i64(0)?);
            moved.push(row.get_i64(1)?);
        }
        let has_moved = |row: &StreamRow| moved.contains(&row.id);
        for id in heads.writes.streams.keys() {
            if !heads.streams.get(id).is_some_and(has_moved) {
                heads.streams.remove(id);
            }
        }
        for command in batch {
            if was_append_written(command, &heads) {
                command.shift_positions(base);
            } else {
                command.pending_mut().clear_reply();
            }
        }
        self.known_heads = heads;
        Ok(())
    }

    async fn commit_batch_with_locks(&mut self, batch: &mut [&mut BatchCommand]) {
        let Err(error) = self.commit_with_locks(LockedWork::Batch(batch)).await else { return };
        let one_may_be_at_fault = match error {
            StoreError::Internal { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Full { .. }
            | StoreError::SchemaMismatch { .. }
            | StoreError::Schema { .. } => true,
            StoreError::Unavailable { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } => {
                false
            }
        };
        if batch.len() == 1 || !one_may_be_at_fault {
            batch.iter_mut().for_each(|command| command.pending_mut().fail_with(copy_error(&error)));
            return;
        }
        for command in batch {
            let attempted = self.commit_with_locks(LockedWork::Batch(&mut [&mut **command])).await;
            if let Err(error) = attempted {
                command.pending_mut().fail_with(error);
            }
        }
    }

    /// Cleans up after a failed optimistic try. The locked path meets the same error again and reports it;
    /// tasks that exist after all are recognized there by their ids.
    async fn abandon_optimistic_try(&mut self, error: &TransactionError, batch: &mut [&mut BatchCommand]) {
        batch.iter_mut().for_each(|command| command.pending_mut().clear_reply());
        self.note_obstacle(error);
        self.roll_back().await;
    }
}

/// Whether an append was written optimistically. `heads` has the streams that moved.
fn was_append_written(command: &BatchCommand, heads: &WorkingSet) -> bool {
    let BatchCommand::Append(request) = command else { return false };
    let is_new = request.reply.as_ref().is_some_and(|reply| matches!(reply, Ok(done) if !done.was_repeated));
    is_new && heads.streams.contains_key(&request.command.stream)
}

impl BatchCommitter for PgWriter {
    const NEEDS_THREAD: bool = false;

    fn set_progress(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn commit_batch(&mut self, batch: &mut [BatchCommand]) {
        let mut appends: Vec<_> = batch.iter_mut().filter(|command| is_lock_free_append(command)).collect();
        if !appends.is_empty()
            && let Err(error) = self.append_optimistically(&mut appends).await
        {
            self.abandon_optimistic_try(&error, &mut appends).await;
        }
        let mut submits: Vec<_> = batch.iter_mut().filter(|command| is_lock_free_submit(command)).collect();
        if !submits.is_empty() {
            match self.submit_optimistically(&mut submits).await {
                Ok(true) => {}
                Ok(false) => submits.iter_mut().for_each(|command| command.pending_mut().clear_reply()),
                Err(error) => self.abandon_optimistic_try(&error, &mut submits).await,
            }
        }
        let mut left: Vec<_> = batch.iter_mut().filter(|command| !command.pending().is_decided()).collect();
        if !left.is_empty() {
            self.commit_batch_with_locks(&mut left).await;
        }
    }

    async fn commit_exclusive(&mut self, command: &mut ExclusiveCommand) {
        if let Err(error) = self.commit_with_locks(LockedWork::Exclusive(command)).await {
            command.pending_mut().fail_with(error);
        }
        if command.invalidates_working_set() {
            self.known_heads.clear();
        }
    }

    async fn close(self) {
        if let Some(conn) = self.conn {
            let _ = conn.close().await;
        }
    }
}
