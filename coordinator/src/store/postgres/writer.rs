//! A coordinator's writers: each has a connection, and heads it remembers, of its own.
//!
//! Appends of holders go as one optimistic statement over heads that this coordinator remembers:
//! one round trip, one commit. Whatever that statement did not write, and every refusal, is decided
//! again with the rows locked; so are commands.

use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

use crate::store::{
    Condition, StoreError,
    ask::{Answered, Ask},
    conn::{Arg, Conn, Dialect, Through},
    desk::{Desk, LoadError},
    fault::{Fault, again, fault, store_error},
    lane::Committer,
    lone::run_lone,
    lookout::Lookout,
    plan::plan_batch,
    write::{POSITION_BITS, fenced_append, writes},
};

/// How long a server that went away is waited for.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// Pause before the server is tried again.
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// How often a transaction that lost against another is repeated.
const CONFLICTS_MAX: u32 = 20;

/// Events of one transaction, at most: what a position can count.
const EVENTS_MAX: usize = 1 << POSITION_BITS;

pub(super) struct PgWriter {
    options: PgConnectOptions,
    through: Through,
    conn: Option<PgConnection>,
    offset: i64,
    ids: std::ops::Range<i64>,
    /// From where on to look for tasks.
    lookout: Lookout,
    /// Heads as this coordinator last saw them; others may have moved them since.
    heads: Desk,
    /// A commit whose answer was lost: the transaction, and what it answers if it took place.
    in_doubt: Option<(i64, Vec<Answered>)>,
}

impl PgWriter {
    /// Without a connection it makes one when it needs one.
    pub(super) fn new(
        options: PgConnectOptions,
        through: Through,
        conn: Option<PgConnection>,
        offset: i64,
    ) -> Self {
        let heads = Desk::optimistic(Dialect::Postgres);
        Self { options, through, conn, offset, ids: 0..0, lookout: Lookout::default(), heads, in_doubt: None }
    }

    async fn connection(&mut self) -> Result<Conn<'_>, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.options.connect().await?);
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
            self.give_up().await;
            let source = match error {
                LoadError::Store(error) => return Err(error),
                LoadError::Sql(source) => source,
            };
            match fault(Dialect::Postgres, &source) {
                Fault::Again | Fault::Stale if conflicts < CONFLICTS_MAX => conflicts += 1,
                Fault::Away if started.elapsed() < AWAY_MAX => {
                    self.conn = None;
                    tokio::time::sleep(AWAY_PAUSE).await;
                }
                Fault::Again | Fault::Stale | Fault::Away | Fault::Full | Fault::Damaged | Fault::Ours => {
                    self.in_doubt = None;
                    return Err(store_error(Dialect::Postgres, doing, source));
                }
            }
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

    /// What became of a commit whose answer was lost. The server remembers, also over a crash.
    async fn settle_doubt(&mut self) -> Result<Option<Vec<Answered>>, sqlx::Error> {
        while let Some(xid) = self.in_doubt.as_ref().map(|(xid, _)| *xid) {
            let mut conn = self.connection().await?;
            let args = vec![Arg::Text(xid.to_string())];
            let mut rows = conn.rows_alone("SELECT pg_xact_status($1::text::xid8)", args).await?;
            let status = rows.first_mut().and_then(|row| row.text_or_null(0).ok()).flatten();
            match status.as_deref() {
                // The server has not yet noticed that we are gone.
                Some("in progress") => tokio::time::sleep(AWAY_PAUSE).await,
                Some("committed") => return Ok(self.in_doubt.take().map(|(_, answers)| answers)),
                Some(_) | None => self.in_doubt = None,
            }
        }
        Ok(None)
    }

    async fn once(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, LoadError> {
        if let Some(answers) = self.settle_doubt().await? {
            return Ok(answers);
        }
        let (offset, ids, begin) = (self.offset, self.ids.clone(), self.through.begin());
        let lookout = std::mem::take(&mut self.lookout);
        let mut conn = self.connection().await?;
        conn.control(begin).await?;
        let mut desk = Desk::new(Dialect::Postgres, ids);
        desk.begin(now_of(asks));
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
        let rows = conn.rows("SELECT pg_current_xact_id()::text::bigint", Vec::new()).await?;
        let xid = rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?;
        let base = ((xid + offset) << POSITION_BITS).unsigned_abs();
        for write in writes(&mut desk, base) {
            let statement = write.columns();
            conn.run(&statement.sql, statement.args).await?;
        }
        for answer in &mut answers {
            answer.place(base);
        }
        self.in_doubt = Some((xid, answers));
        self.ids = desk.ids_left();
        self.lookout = lookout;
        self.connection().await?.control("COMMIT").await?;
        self.heads.note(&mut desk);
        Ok(self.in_doubt.take().map(|(_, answers)| answers).unwrap_or_default())
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
            || staged.streams.values().any(Option::is_none)
        {
            return Ok(undecided());
        }
        let statement = fenced_append(&mut heads, offset);
        let rows = conn.rows(&statement.sql, statement.args).await?;
        let mut moved = Vec::with_capacity(rows.len());
        let mut base = 0;
        for row in &rows {
            base = ((row.int(0)? + offset) << POSITION_BITS).unsigned_abs();
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
            Err(_) => {
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
            | StoreError::Schema { .. } => true,
            StoreError::Unavailable { .. } | StoreError::Damaged { .. } => false,
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

fn now_of(asks: &[&Ask]) -> docket_schema::ids::Timestamp {
    asks.iter().map(|ask| ask.now()).max().unwrap_or_default()
}

/// Appends that may be sent twice without harm, and that need nothing but heads and events.
fn is_quick(ask: &Ask) -> bool {
    match ask {
        Ask::Append(ask) => {
            let repeats = match ask.condition {
                Condition::Holder(..) | Condition::Expected(_) => true,
                Condition::AtHead => false,
            };
            repeats && ask.blobs.is_empty() && ask.names.is_empty()
        }
        Ask::Command(_)
        | Ask::Submit { .. }
        | Ask::Lease { .. }
        | Ask::Heartbeat { .. }
        | Ask::PutBlobs { .. }
        | Ask::TouchBlobs { .. }
        | Ask::Import(_)
        | Ask::Remove(_)
        | Ask::Restore(_)
        | Ask::Term(_)
        | Ask::DropBlobs { .. }
        | Ask::DrainWorker { .. }
        | Ask::TakeInbox { .. }
        | Ask::ActInbox { .. }
        | Ask::Permit(_)
        | Ask::CallEnded { .. }
        | Ask::Secret { .. }
        | Ask::Rebuild => false,
    }
}

impl Committer for PgWriter {
    const HAS_A_THREAD: bool = false;

    async fn batch(&mut self, asks: &[&Ask]) -> Vec<Answered> {
        let mut answers: Vec<Option<Answered>> = asks.iter().map(|_| None).collect();
        let (at, quick): (Vec<usize>, Vec<&Ask>) =
            asks.iter().copied().enumerate().filter(|(_, ask)| is_quick(ask)).unzip();
        if !quick.is_empty() {
            for (at, answer) in at.into_iter().zip(self.quick(&quick).await) {
                answers[at] = answer;
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
        // A term moves no head; a permit changes nothing that is remembered, and comes often.
        if !matches!(ask, Ask::Term(_) | Ask::Permit(_) | Ask::CallEnded { .. }) {
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
