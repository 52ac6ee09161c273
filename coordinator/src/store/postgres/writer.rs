//! A coordinator's writer. Rows that are decided upon are locked first; the statements carry the
//! fence as well.

use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};

use crate::store::{
    StoreError,
    ask::{Answered, Ask},
    conn::{Conn, Dialect},
    desk::{Desk, LoadError},
    fault::{Fault, again, fault, store_error},
    lane::Committer,
    lone::run_lone,
    plan::plan_batch,
    write::writes,
};

/// Bits of a position that count within a transaction; the rest is its id.
pub(super) const POSITION_BITS: u32 = 16;

/// How long a server that went away is waited for. What was asked is idempotent or was not committed.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// Pause before the server is tried again.
const AWAY_PAUSE: Duration = Duration::from_millis(100);

/// How often a transaction that lost against another is repeated.
const CONFLICTS_MAX: u32 = 20;

/// Events of one transaction, at most: what a position can count.
const EVENTS_MAX: usize = 1 << POSITION_BITS;

pub(super) struct PgWriter {
    options: PgConnectOptions,
    conn: Option<PgConnection>,
    offset: i64,
    ids: std::ops::Range<i64>,
}

impl PgWriter {
    pub(super) fn new(options: PgConnectOptions, conn: PgConnection, offset: i64) -> Self {
        Self { options, conn: Some(conn), offset, ids: 0..0 }
    }

    async fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        if self.conn.is_none() {
            self.conn = Some(self.options.connect().await?);
        }
        Ok(self.conn.as_mut().expect("it was just made"))
    }

    /// One transaction, repeated as long as that helps.
    async fn attempt(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, StoreError> {
        let started = Instant::now();
        let doing = asks.first().map_or("writing", |ask| ask.doing());
        let mut conflicts = 0;
        loop {
            let error = match self.once(asks).await {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            if let Some(conn) = &mut self.conn
                && Conn::Postgres(conn).run("ROLLBACK", Vec::new()).await.is_err()
            {
                self.conn = None;
            }
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
                Fault::Again | Fault::Stale | Fault::Away | Fault::Full | Fault::Ours => {
                    return Err(store_error(Dialect::Postgres, doing, source));
                }
            }
        }
    }

    async fn once(&mut self, asks: &[&Ask]) -> Result<Vec<Answered>, LoadError> {
        let (offset, ids) = (self.offset, self.ids.clone());
        let conn = self.connection().await?;
        let mut conn = Conn::Postgres(conn);
        conn.run("BEGIN", Vec::new()).await?;
        if let [ask] = asks
            && ask.is_lone()
        {
            let answer = run_lone(&mut conn, ask).await?;
            conn.run("COMMIT", Vec::new()).await?;
            return Ok(vec![answer]);
        }
        let mut desk = Desk::new(Dialect::Postgres, ids);
        desk.begin(asks.iter().map(|ask| ask.now()).max().unwrap_or_default());
        let mut answers = plan_batch(&mut desk, &mut conn, asks).await?;
        if !desk.staged.is_empty() {
            if desk.staged.events.len() > EVENTS_MAX {
                return Err(StoreError::Schema {
                    what: format!("one transaction of {} events; send less at once", desk.staged.events.len()),
                }
                .into());
            }
            let rows = conn.rows("SELECT pg_current_xact_id()::text::bigint", Vec::new()).await?;
            let xid = rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?;
            let base = ((xid + offset) << POSITION_BITS).unsigned_abs();
            for write in writes(&desk.staged, &desk, base) {
                let statement = write.columns();
                conn.run(&statement.sql, statement.args).await?;
            }
            for answer in &mut answers {
                answer.place(base);
            }
        }
        conn.run("COMMIT", Vec::new()).await?;
        self.ids = desk.ids_left();
        Ok(answers)
    }
}

impl Committer for PgWriter {
    async fn batch(&mut self, asks: &[&Ask]) -> Vec<Answered> {
        let error = match self.attempt(asks).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        let one_may_be_at_fault = matches!(
            error,
            StoreError::Fault { .. } | StoreError::Corrupt { .. } | StoreError::Full { .. } | StoreError::Schema { .. }
        );
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

    async fn lone(&mut self, ask: &Ask) -> Answered {
        match self.attempt(&[ask]).await {
            Ok(mut one) => one.pop().expect("one ask, one answer"),
            Err(error) => ask.failed(error),
        }
    }

    async fn close(self) {
        if let Some(conn) = self.conn {
            let _ = conn.close().await;
        }
    }
}
