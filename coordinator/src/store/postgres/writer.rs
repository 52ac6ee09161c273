//! A coordinator's writers: each has a connection, and heads it remembers, of its own.
//!
//! Appends of holders go as one optimistic statement over heads that this coordinator remembers:
//! one round trip, one commit. Whatever that statement did not write, and every refusal, is decided
//! again with the rows locked; so are commands.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::ids::EventHash;
use sqlx::{Connection as _, PgConnection};

use super::{
    quick::{is_quick, is_quick_submit},
    server_link::ServerLink,
    statement::{Statement, fenced_append, one_row, statements, submission},
};
use crate::store::{
    StoreError,
    ask::{Answered, Ask, now_of},
    conn::{Arg, Conn, Dialect, Through},
    desk::{Desk, LoadError},
    fault::{Fault, again, fault, store_error},
    lane::Committer,
    lone::run_lone,
    lookout::{Lookout, News},
    plan::plan_batch,
    progress::{LOCK_HELD, READ_ONLY, UNREACHABLE, WriterProgress},
    write::{POSITION_BITS, int},
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
    /// From where on to look for tasks, for the writer that leases.
    lookout: Lookout,
    leases: bool,
    /// A choice under limits is expected in the next transaction that leases.
    expects_limits: bool,
    news: News,
    progress: Arc<WriterProgress>,
    /// Heads as this coordinator last saw them; others may have moved them since.
    heads: Desk,
    /// A commit whose answer was lost.
    in_doubt: Option<Doubt>,
}

/// A commit that was asked for.
struct Doubt {
    /// The transaction's id.
    xid: i64,
    /// Place and hash of its first event; none where it writes none.
    first: Option<(u64, EventHash)>,
    /// What it answers if it took place.
    answers: Vec<Answered>,
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
            lookout: Lookout::default(),
            leases: true,
            expects_limits: false,
            news: News::default(),
            progress: Arc::default(),
            heads: Desk::optimistic(Dialect::Postgres),
            in_doubt: None,
        }
    }

    /// Another writer beside this one, which leases nothing.
    pub(super) fn beside(&self) -> Self {
        let new = Self::new(self.link.clone(), None, self.offset);
        Self { leases: false, news: self.news.clone(), ..new }
    }

    async fn connection(&mut self) -> Result<Conn<'_>, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.link.connect().await?);
        }
        Ok(Conn::Postgres(self.conn.as_mut().expect("it was just made"), self.through))
    }

    /// One locked transaction, repeated as long as that helps.
    async fn attempt(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, StoreError> {
        let started = Instant::now();
        let doing = asks.first().map_or("writing", |ask| ask.doing());
        let mut conflicts = 0;
        loop {
            let error = match self.once(asks).await {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            self.note_obstacle(&error);
            self.give_up().await;
            let source = match error {
                LoadError::Store(error) => return Err(error),
                LoadError::LimitsUnexpected => {
                    self.expects_limits = true;
                    continue;
                }
                LoadError::Sql(source) => source,
            };
            let found = fault(Dialect::Postgres, &source);
            if found.is_conflict() && conflicts < CONFLICTS_MAX && started.elapsed() < LOCKED_MAX {
                conflicts += 1;
            } else if found.is_of_connection() && started.elapsed() < AWAY_MAX {
                tokio::time::sleep(AWAY_PAUSE).await;
            } else {
                self.in_doubt = None;
                return Err(store_error(Dialect::Postgres, doing, source));
            }
        }
    }

    /// Notes what kept a try from writing, where another one may help, and leaves a server that cannot help.
    fn note_obstacle(&mut self, error: &LoadError) {
        let LoadError::Sql(source) = error else { return };
        let obstacle = match fault(Dialect::Postgres, source) {
            Fault::Again => LOCK_HELD,
            Fault::Away => UNREACHABLE,
            Fault::ReadOnly => READ_ONLY,
            Fault::Stale | Fault::Full | Fault::Damaged | Fault::Ours => return,
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

    /// What became of a commit whose answer was lost. The transaction's id alone does not say: a server that crashed
    /// gives out again what it had given to transactions of which nothing had reached its log, and the one that has the
    /// id now may be another coordinator's. So its first event is looked for. What wrote none is done once more.
    async fn settle_doubt(&mut self) -> Result<Option<Vec<Answered>>, LoadError> {
        let since = Instant::now();
        while let Some((xid, first)) = self.in_doubt.as_ref().map(|doubt| (doubt.xid, doubt.first)) {
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
                let args = vec![int(position), Arg::Hash(hash.0)];
                let sql = "SELECT count(*) FROM events WHERE position = $1 AND hash = $2";
                let rows = conn.rows_alone(sql, args).await?;
                is_written = rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)? > 0;
            }
            let doubt = self.in_doubt.take();
            return Ok(doubt.filter(|_| is_written).map(|doubt| doubt.answers));
        }
        Ok(None)
    }

    async fn once(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, LoadError> {
        if let Some(answers) = self.settle_doubt().await? {
            return Ok(answers);
        }
        let (offset, ids, begin) = (self.offset, self.ids.clone(), self.through.begin());
        let expects_limits = self.expects_limits;
        let mut lookout = std::mem::take(&mut self.lookout);
        if self.leases {
            self.news.hear(&mut lookout);
        }
        let mut conn = self.connection().await?;
        conn.control(begin).await?;
        let mut desk = Desk::new(Dialect::Postgres, ids);
        desk.begin(now_of(asks));
        desk.leasing.expects_limits = expects_limits;
        desk.lookout = lookout;
        let mut answers = match asks {
            [ask] if ask.is_lone() => vec![run_lone(&mut conn, ask).await?],
            _ => plan_batch(&mut desk, &mut conn, asks).await?,
        };
        // A transaction that fails leaves none: the next looks at the whole.
        let lookout = std::mem::take(&mut desk.lookout);
        if desk.staged.events.len() > EVENTS_MAX {
            let what = format!("one transaction of {} events; send less at once", desk.staged.events.len());
            return Err(StoreError::Schema { what }.into());
        }
        let first = desk.staged.events.first().map(|event| event.hash);
        let mut xid = None;
        for Statement { sql, args } in statements(&mut desk, offset) {
            xid = Some(one_row(conn.rows(&sql, args).await?)?.int(0)?);
        }
        // One that stands alone wrote by itself. A transaction that writes nothing leaves nothing in doubt.
        if let [ask] = asks
            && ask.is_lone()
        {
            let rows = conn.rows("SELECT pg_current_xact_id()::text::bigint", Vec::new()).await?;
            xid = Some(one_row(rows)?.int(0)?);
        }
        self.ids = desk.ids_left();
        if desk.leasing.requests > 0 {
            self.expects_limits = desk.leasing.meets_limits;
        }
        if let Some(xid) = xid {
            for answer in &mut answers {
                answer.place(self.first_position(xid));
            }
            let first = first.map(|hash| (self.first_position(xid), hash));
            self.in_doubt = Some(Doubt { xid, first, answers });
            self.connection().await?.control("COMMIT").await?;
            answers = self.in_doubt.take().map(|doubt| doubt.answers).unwrap_or_default();
            self.heads.note(&mut desk);
        } else {
            self.connection().await?.control("COMMIT").await?;
        }
        if self.leases {
            self.lookout = lookout;
        } else {
            self.news.tell(lookout);
        }
        Ok(answers)
    }

    /// The first position of a transaction.
    const fn first_position(&self, xid: i64) -> u64 {
        ((xid + self.offset) << POSITION_BITS).unsigned_abs()
    }

    /// Submits in one statement, which is its own transaction. `None` = to be decided again, with locks: something of it
    /// is there already, or a blob is not.
    async fn submits(&mut self, asks: &[&Ask]) -> Result<Option<Vec<Answered>>, LoadError> {
        let mut desk = Desk::on_trust(Dialect::Postgres, self.ids.clone());
        desk.begin(now_of(asks));
        desk.lookout = std::mem::take(&mut self.lookout);
        let (offset, through) = (self.offset, self.through);
        let mut conn = self.connection().await?;
        if through == Through::Pooler {
            conn.control(through.begin()).await?;
        }
        let mut answers = plan_batch(&mut desk, &mut conn, asks).await?;
        // Also where it does not come to be: what was noted only says to look from further before.
        let lookout = std::mem::take(&mut desk.lookout);
        let ids = desk.ids_left();
        let fits = desk.staged.events.len() <= EVENTS_MAX;
        let Some(Statement { sql, args }) = submission(&mut desk, offset).filter(|_| fits) else {
            self.lookout = lookout;
            self.give_up().await;
            return Ok(None);
        };
        let answered = conn.rows(&sql, args).await;
        self.lookout = lookout;
        let row = one_row(answered?)?;
        let (xid, wrote) = (row.int(0)?, row.int(1)? != 0);
        if through == Through::Pooler {
            self.connection().await?.control("COMMIT").await?;
        }
        self.ids = ids;
        if !wrote {
            return Ok(None);
        }
        for answer in &mut answers {
            answer.place(self.first_position(xid));
        }
        Ok(Some(answers))
    }

    /// What of `asks` could be written without locks: all of them or none.
    async fn quick_submits(&mut self, asks: &[&Ask]) -> Option<Vec<Answered>> {
        match self.submits(asks).await {
            Ok(answers) => answers,
            // Whatever it was, the locked way meets it again and says what it is. Tasks that are there after all are
            // known there by their ids.
            Err(error) => {
                self.note_obstacle(&error);
                self.give_up().await;
                None
            }
        }
    }

    /// Tries appends without locks. `None` = to be decided again, with locks.
    async fn optimistic(&mut self, asks: &[&Ask]) -> Result<Vec<Option<Answered>>, LoadError> {
        if self.through == Through::Server {
            return self.unlocked(asks).await;
        }
        let begin = self.through.begin();
        self.connection().await?.control(begin).await?;
        let answers = self.unlocked(asks).await?;
        let ended = self.connection().await?.control("COMMIT").await;
        if ended.is_err() {
            // They say that the appends took place.
            self.heads.clear();
        }
        ended?;
        Ok(answers)
    }

    async fn unlocked(&mut self, asks: &[&Ask]) -> Result<Vec<Option<Answered>>, LoadError> {
        let undecided = || asks.iter().map(|_| None).collect::<Vec<Option<Answered>>>();
        self.heads.begin(now_of(asks));
        let mut heads = std::mem::replace(&mut self.heads, Desk::optimistic(Dialect::Postgres));
        let offset = self.offset;
        let mut conn = self.connection().await?;
        let answers = plan_batch(&mut heads, &mut conn, asks).await?;
        let staged = &heads.staged;
        // A run's row that changes, or a stream that begins, is more than this statement writes.
        if staged.events.is_empty()
            || !staged.runs.is_empty()
            || !staged.queues.is_empty()
            || !staged.budgets.is_empty()
            || staged.streams.values().any(Option::is_none)
        {
            return Ok(undecided());
        }
        let statement = fenced_append(&mut heads, offset);
        let rows = conn.rows(&statement.sql, statement.args).await?;
        let mut moved = Vec::with_capacity(rows.len());
        let mut base = 0;
        for row in &rows {
            base = self.first_position(row.int(0)?);
            moved.push(row.int(1)?);
        }
        let stayed = heads
            .staged
            .streams
            .keys()
            .filter(|id| heads.streams.get(id).is_none_or(|row| !moved.contains(&row.id)));
        for id in stayed.cloned().collect::<Vec<_>>() {
            heads.streams.remove(&id);
        }
        self.heads = heads;
        Ok(asks
            .iter()
            .zip(answers)
            .map(|(ask, mut answer)| {
                let done = matches!(&answer, Answered::Append(Ok(appended)) if !appended.repeated);
                let stream = ask.appends_to().and_then(|stream| self.heads.streams.get(stream));
                stream.filter(|row| done && moved.contains(&row.id)).map(|_| {
                    answer.place(base);
                    answer
                })
            })
            .collect())
    }

    /// What of `asks` could be written without locks.
    async fn quick(&mut self, asks: &[&Ask]) -> Vec<Option<Answered>> {
        match self.optimistic(asks).await {
            Ok(answers) => answers,
            // Whatever it was, the locked way meets it again and says what it is.
            Err(error) => {
                self.note_obstacle(&error);
                self.give_up().await;
                asks.iter().map(|_| None).collect()
            }
        }
    }

    async fn locked(&mut self, asks: &[&Ask]) -> Vec<Answered> {
        let error = match self.attempt(asks).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
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
        if asks.len() == 1 || !one_may_be_at_fault {
            return asks.iter().map(|ask| ask.failed(again(&error))).collect();
        }
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(match self.attempt(&[*ask]).await {
                Ok(mut one) => one.pop().expect("one ask, one answer"),
                Err(error) => ask.failed(error),
            });
        }
        answers
    }
}

impl Committer for PgWriter {
    const HAS_A_THREAD: bool = false;

    fn report_to(&mut self, progress: Arc<WriterProgress>) {
        self.progress = progress;
    }

    async fn batch(&mut self, asks: &[&Ask]) -> Vec<Answered> {
        let mut answers: Vec<Option<Answered>> = asks.iter().map(|_| None).collect();
        let (at, quick): (Vec<usize>, Vec<&Ask>) =
            asks.iter().copied().enumerate().filter(|(_, ask)| is_quick(ask)).unzip();
        if !quick.is_empty() {
            for (at, answer) in at.into_iter().zip(self.quick(&quick).await) {
                answers[at] = answer;
            }
        }
        let (at, submits): (Vec<usize>, Vec<&Ask>) =
            asks.iter().copied().enumerate().filter(|(_, ask)| is_quick_submit(ask)).unzip();
        if !submits.is_empty()
            && let Some(done) = self.quick_submits(&submits).await
        {
            for (at, answer) in at.into_iter().zip(done) {
                answers[at] = Some(answer);
            }
        }
        let left: Vec<&Ask> = asks
            .iter()
            .copied()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_none())
            .map(|(ask, _)| ask)
            .collect();
        let mut locked = if left.is_empty() { Vec::new() } else { self.locked(&left).await }.into_iter();
        answers
            .into_iter()
            .map(|answer| answer.or_else(|| locked.next()).expect("what was left has been answered"))
            .collect()
    }

    async fn lone(&mut self, ask: &Ask) -> Answered {
        let answer = match self.attempt(&[ask]).await {
            Ok(mut one) => one.pop().expect("one ask, one answer"),
            Err(error) => ask.failed(error),
        };
        // A term moves no head; what a call asks for changes nothing that is remembered, and comes often.
        let moves_none = matches!(
            ask,
            Ask::Term(_)
                | Ask::Permit(_)
                | Ask::CallEnded { .. }
                | Ask::Reserve { .. }
                | Ask::CountBatch { .. }
        );
        if !moves_none {
            self.heads.clear();
        }
        answer
    }

    async fn close(self) {
        if let Some(conn) = self.conn {
            let _ = conn.close().await;
        }
    }
}
