//! A coordinator's writers: each has a connection, and heads it remembers, of its own.
//!
//! Appends of holders go as one optimistic statement over heads that this coordinator remembers:
//! one round trip, one commit. All that this statement did not write, and every refusal, is decided
//! again with the rows locked; so are commands.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::ids::EventHash;
use sqlx::{Connection as _, PgConnection};

use super::{
    lock_free::{is_lock_free_append, is_lock_free_submit},
    server_link::ServerLink,
    statement::{Statement, fenced_append, one_row, statements, submission},
};
use crate::store::{
    StoreError,
    db::{
        Arg, Conn, DbErrorKind, Dialect, Through, TransactionError, classify_error, copy_error,
        row::StreamRow, store_error,
    },
    plan::{plan_batch, run_exclusive},
    writer::{
        AvailabilityHints, BatchCommand, Committer, ExclusiveCommand, LOCK_HELD, LeaseCursor, POSITION_BITS,
        READ_ONLY, UNREACHABLE, WorkingSet, WriterProgress, doing, latest_now,
    },
};

/// How long a server that went away is waited for.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// Pause before the server is tried again.
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// How often a transaction that lost against another is repeated.
const CONFLICTS_MAX: u32 = 20;

/// How long a lock that another session holds is waited for, over all tries; each ends with the session's
/// `lock_timeout`.
const LOCKED_MAX: Duration = Duration::from_secs(30);

/// Events of one transaction, at most: what a position can count.
const EVENTS_MAX: usize = 1 << POSITION_BITS;

pub(super) struct PgWriter {
    link: ServerLink,
    through: Through,
    conn: Option<PgConnection>,
    offset: i64,
    ids: std::ops::Range<i64>,
    /// Scan state of lease requests, for the writer that leases.
    cursor: LeaseCursor,
    leases: bool,
    /// A choice under limits is expected in the next transaction that leases.
    expects_limits: bool,
    available: AvailabilityHints,
    progress: Arc<WriterProgress>,
    /// Heads as this coordinator last saw them; others may have moved them since.
    heads: WorkingSet,
}

/// The commands of one transaction with locks.
enum Locked<'a, 'b> {
    Batch(&'a mut [&'b mut BatchCommand]),
    Exclusive(&'a mut ExclusiveCommand),
}

impl Locked<'_, '_> {
    fn doing(&self) -> &'static str {
        match self {
            Self::Batch(batch) => doing(batch),
            Self::Exclusive(command) => command.pending().doing(),
        }
    }
}

/// A commit whose answer was lost. The commands are decided, and their replies hold if it took place.
struct Doubt {
    /// The transaction's id.
    xid: i64,
    /// Place and hash of its first event; none where it writes none.
    first: Option<(u64, EventHash)>,
}

impl PgWriter {
    /// Without a connection it makes one when it needs one.
    pub(super) fn new(link: ServerLink, conn: Option<PgConnection>, offset: i64) -> Self {
        Self {
            through: link.through,
            link,
            conn,
            offset,
            ids: 0..0,
            cursor: LeaseCursor::default(),
            leases: true,
            expects_limits: false,
            available: AvailabilityHints::default(),
            progress: Arc::default(),
            heads: WorkingSet::optimistic(Dialect::Postgres),
        }
    }

    /// Another writer of the same coordinator, which leases nothing.
    pub(super) fn sibling(&self) -> Self {
        let new = Self::new(self.link.clone(), None, self.offset);
        Self { leases: false, available: self.available.clone(), ..new }
    }

    async fn connection(&mut self) -> Result<Conn<'_>, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.link.connect().await?);
        }
        Ok(Conn::Postgres(self.conn.as_mut().expect("it was just made"), self.through))
    }

    /// One transaction with locks, repeated as long as that helps.
    async fn attempt(&mut self, mut work: Locked<'_, '_>) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut conflicts = 0;
        let mut doubt = None;
        loop {
            let Err(error) = self.attempt_once(&mut work, &mut doubt).await else { return Ok(()) };
            self.note_obstacle(&error);
            self.give_up().await;
            let source = match error {
                TransactionError::Store(error) => return Err(error),
                TransactionError::LimitsUnexpected => {
                    self.expects_limits = true;
                    continue;
                }
                TransactionError::Sql(source) => source,
            };
            let kind = classify_error(Dialect::Postgres, &source);
            if kind.is_conflict() && conflicts < CONFLICTS_MAX && started.elapsed() < LOCKED_MAX {
                conflicts += 1;
            } else if kind.is_of_connection() && started.elapsed() < AWAY_MAX {
                tokio::time::sleep(AWAY_PAUSE).await;
            } else {
                return Err(store_error(Dialect::Postgres, work.doing(), source));
            }
        }
    }

    /// Notes what kept a try from writing, where another one may help, and leaves a server that cannot help.
    fn note_obstacle(&mut self, error: &TransactionError) {
        let TransactionError::Sql(source) = error else { return };
        let obstacle = match classify_error(Dialect::Postgres, source) {
            DbErrorKind::Again => LOCK_HELD,
            DbErrorKind::Away => UNREACHABLE,
            DbErrorKind::ReadOnly => READ_ONLY,
            DbErrorKind::Stale | DbErrorKind::Full | DbErrorKind::Damaged | DbErrorKind::Ours => return,
        };
        self.progress.note_obstacle(obstacle);
        if obstacle == READ_ONLY {
            self.link.failover.note();
        }
        if obstacle != LOCK_HELD {
            self.conn = None;
        }
    }

    /// Ends a transaction that failed; a connection that cannot even do that is dropped.
    async fn give_up(&mut self) {
        if let Some(conn) = &mut self.conn
            && Conn::Postgres(conn, self.through).control("ROLLBACK").await.is_err()
        {
            self.conn = None;
        }
    }

    /// Finds out whether a commit whose answer was lost took place. The transaction's id alone does not say: a server that
    /// crashed gives out again what it had given to transactions of which nothing had reached its log, and the one that
    /// has the id now may be another coordinator's. So its first event is looked for. What wrote none is done once more.
    async fn settle_doubt(&mut self, doubt: &mut Option<Doubt>) -> Result<bool, TransactionError> {
        let since = Instant::now();
        while let Some(Doubt { xid, first }) = doubt {
            let mut conn = self.connection().await?;
            let args = vec![Arg::Text(xid.to_string())];
            // An id that was given to nobody since is asked for in vain: an id of one's own is above all that were. A
            // snapshot's end is not, it is above those that have ended: ours may be under way beyond it.
            let sql = "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() \
                       THEN pg_xact_status($1::text::xid8) END";
            let mut rows = conn.rows_alone(sql, args).await?;
            let status = rows.first_mut().and_then(|row| row.text_or_null(0).ok()).flatten();
            if status.as_deref() == Some("in progress") {
                // The server has not yet noticed that we are gone. It may take it long where the connection is half open.
                if since.elapsed() > AWAY_MAX {
                    return Err(sqlx::Error::PoolTimedOut.into());
                }
                tokio::time::sleep(AWAY_PAUSE).await;
                continue;
            }
            let mut is_written = false;
            if let Some((position, hash)) = first {
                let args = vec![Arg::count(*position), Arg::Hash(hash.0)];
                let sql = "SELECT count(*) FROM events WHERE position = $1 AND hash = $2";
                let rows = conn.rows_alone(sql, args).await?;
                is_written = rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)? > 0;
            }
            *doubt = None;
            return Ok(is_written);
        }
        Ok(false)
    }

    async fn attempt_once(
        &mut self,
        work: &mut Locked<'_, '_>,
        doubt: &mut Option<Doubt>,
    ) -> Result<(), TransactionError> {
        if self.settle_doubt(doubt).await? {
            return Ok(());
        }
        let (offset, ids, begin) = (self.offset, self.ids.clone(), self.through.begin());
        let expects_limits = self.expects_limits;
        let mut cursor = std::mem::take(&mut self.cursor);
        if self.leases {
            self.available.take_into(&mut cursor);
        }
        let mut conn = self.connection().await?;
        conn.control(begin).await?;
        let mut set = WorkingSet::new(Dialect::Postgres, ids);
        let mut xid = None;
        match work {
            Locked::Batch(batch) => {
                set.begin(latest_now(batch));
                set.lease_reads.expects_limits = expects_limits;
                set.cursor = cursor;
                plan_batch(&mut set, &mut conn, batch).await?;
                // A transaction that fails leaves none: the next scans all flows.
                cursor = std::mem::take(&mut set.cursor);
            }
            Locked::Exclusive(command) => {
                run_exclusive(&mut conn, command).await?;
                // It wrote by itself. A transaction that writes nothing leaves nothing in doubt.
                let rows = conn.rows("SELECT pg_current_xact_id()::text::bigint", Vec::new()).await?;
                xid = Some(one_row(rows)?.int(0)?);
            }
        }
        let events = set.writes.events.len();
        if events > EVENTS_MAX {
            let what = format!("one transaction of {events} events; send less at once");
            return Err(StoreError::Schema { what }.into());
        }
        let first = set.writes.events.first().map(|event| event.hash);
        for Statement { sql, args } in statements(&mut set, offset) {
            xid = Some(one_row(conn.rows(&sql, args).await?)?.int(0)?);
        }
        self.ids = set.ids_left();
        if set.lease_reads.requests > 0 {
            self.expects_limits = set.lease_reads.meets_limits;
        }
        if let Some(xid) = xid {
            let base = self.first_position(xid);
            if let Locked::Batch(batch) = work {
                batch.iter_mut().for_each(|command| command.place(base));
            }
            *doubt = Some(Doubt { xid, first: first.map(|hash| (base, hash)) });
        }
        self.connection().await?.control("COMMIT").await?;
        *doubt = None;
        if xid.is_some() {
            self.heads.remember_heads(&mut set);
        }
        if self.leases {
            self.cursor = cursor;
        } else {
            self.available.publish(cursor);
        }
        Ok(())
    }

    /// The first position of a transaction.
    const fn first_position(&self, xid: i64) -> u64 {
        ((xid + self.offset) << POSITION_BITS).unsigned_abs()
    }

    /// Submits in one statement, which is its own transaction. `false` = to be decided again, with locks: something of it
    /// exists already, or a blob does not.
    async fn submit_optimistically(
        &mut self,
        batch: &mut [&mut BatchCommand],
    ) -> Result<bool, TransactionError> {
        let mut set = WorkingSet::for_optimistic_insert(Dialect::Postgres, self.ids.clone());
        set.begin(latest_now(batch));
        set.cursor = std::mem::take(&mut self.cursor);
        let (offset, through) = (self.offset, self.through);
        let mut conn = self.connection().await?;
        if through == Through::Pooler {
            conn.control(through.begin()).await?;
        }
        plan_batch(&mut set, &mut conn, batch).await?;
        // Also where nothing is written: the cursor then only says to scan from further before.
        let cursor = std::mem::take(&mut set.cursor);
        let ids = set.ids_left();
        let fits = set.writes.events.len() <= EVENTS_MAX;
        let Some(Statement { sql, args }) = submission(&mut set, offset).filter(|_| fits) else {
            self.cursor = cursor;
            self.give_up().await;
            return Ok(false);
        };
        let answered = conn.rows(&sql, args).await;
        self.cursor = cursor;
        let row = one_row(answered?)?;
        let (xid, wrote) = (row.int(0)?, row.int(1)? != 0);
        if through == Through::Pooler {
            self.connection().await?.control("COMMIT").await?;
        }
        self.ids = ids;
        if wrote {
            let base = self.first_position(xid);
            batch.iter_mut().for_each(|command| command.place(base));
        }
        Ok(wrote)
    }

    /// Tries appends without locks. Afterwards those are decided that were written.
    async fn append_optimistically(
        &mut self,
        batch: &mut [&mut BatchCommand],
    ) -> Result<(), TransactionError> {
        if self.through == Through::Server {
            return self.append_unlocked(batch).await;
        }
        let begin = self.through.begin();
        self.connection().await?.control(begin).await?;
        self.append_unlocked(batch).await?;
        let ended = self.connection().await?.control("COMMIT").await;
        if ended.is_err() {
            // They say that the appends took place.
            self.heads.clear();
        }
        Ok(ended?)
    }

    async fn append_unlocked(&mut self, batch: &mut [&mut BatchCommand]) -> Result<(), TransactionError> {
        self.heads.begin(latest_now(batch));
        let mut heads = std::mem::replace(&mut self.heads, WorkingSet::optimistic(Dialect::Postgres));
        let offset = self.offset;
        let mut conn = self.connection().await?;
        plan_batch(&mut heads, &mut conn, batch).await?;
        let writes = &heads.writes;
        // A run's row that changes, or a stream that begins, is more than this statement writes.
        if writes.events.is_empty()
            || !writes.runs.is_empty()
            || !writes.queues.is_empty()
            || !writes.budgets.is_empty()
            || writes.streams.values().any(Option::is_none)
        {
            batch.iter_mut().for_each(|command| command.pending_mut().undecide());
            return Ok(());
        }
        let statement = fenced_append(&mut heads, offset);
        let rows = conn.rows(&statement.sql, statement.args).await?;
        let mut moved = Vec::with_capacity(rows.len());
        let mut base = 0;
        for row in &rows {
            base = self.first_position(row.int(0)?);
            moved.push(row.int(1)?);
        }
        let has_moved = |row: &StreamRow| moved.contains(&row.id);
        for id in heads.writes.streams.keys() {
            if !heads.streams.get(id).is_some_and(has_moved) {
                heads.streams.remove(id);
            }
        }
        for command in batch {
            if is_written(command, &heads) {
                command.place(base);
            } else {
                command.pending_mut().undecide();
            }
        }
        self.heads = heads;
        Ok(())
    }

    async fn commit_locked(&mut self, batch: &mut [&mut BatchCommand]) {
        let Err(error) = self.attempt(Locked::Batch(batch)).await else { return };
        let one_may_be_at_fault = match error {
            StoreError::Fault { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Full { .. }
            | StoreError::OtherBuild { .. }
            | StoreError::Schema { .. } => true,
            StoreError::Unavailable { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } => {
                false
            }
        };
        if batch.len() == 1 || !one_may_be_at_fault {
            batch.iter_mut().for_each(|command| command.pending_mut().fail(copy_error(&error)));
            return;
        }
        for command in batch {
            let attempted = self.attempt(Locked::Batch(&mut [&mut **command])).await;
            if let Err(error) = attempted {
                command.pending_mut().fail(error);
            }
        }
    }

    /// After a try without locks that failed. Whatever it was, the way with locks meets it again and says what it is;
    /// tasks that exist after all are known there by their ids.
    async fn give_up_optimism(&mut self, error: &TransactionError, batch: &mut [&mut BatchCommand]) {
        batch.iter_mut().for_each(|command| command.pending_mut().undecide());
        self.note_obstacle(error);
        self.give_up().await;
    }
}

/// Whether an append was written without locks. `heads` has the streams that moved.
fn is_written(command: &BatchCommand, heads: &WorkingSet) -> bool {
    let BatchCommand::Append(request) = command else { return false };
    let is_new = request.reply.as_ref().is_some_and(|reply| matches!(reply, Ok(done) if !done.repeated));
    is_new && heads.streams.contains_key(&request.command.stream)
}

impl Committer for PgWriter {
    const HAS_A_THREAD: bool = false;

    fn report_to(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn commit_batch(&mut self, batch: &mut [BatchCommand]) {
        let mut appends: Vec<_> = batch.iter_mut().filter(|command| is_lock_free_append(command)).collect();
        if !appends.is_empty()
            && let Err(error) = self.append_optimistically(&mut appends).await
        {
            self.give_up_optimism(&error, &mut appends).await;
        }
        let mut submits: Vec<_> = batch.iter_mut().filter(|command| is_lock_free_submit(command)).collect();
        if !submits.is_empty() {
            match self.submit_optimistically(&mut submits).await {
                Ok(true) => {}
                Ok(false) => submits.iter_mut().for_each(|command| command.pending_mut().undecide()),
                Err(error) => self.give_up_optimism(&error, &mut submits).await,
            }
        }
        let mut left: Vec<_> = batch.iter_mut().filter(|command| !command.pending().is_decided()).collect();
        if !left.is_empty() {
            self.commit_locked(&mut left).await;
        }
    }

    async fn commit_exclusive(&mut self, command: &mut ExclusiveCommand) {
        if let Err(error) = self.attempt(Locked::Exclusive(command)).await {
            command.pending_mut().fail(error);
        }
        if command.changes_projections() {
            self.heads.clear();
        }
    }

    async fn close(self) {
        if let Some(conn) = self.conn {
            let _ = conn.close().await;
        }
    }
}
