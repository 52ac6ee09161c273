//! Hints between coordinators of one database: that there is news, never what.
//!
//! A notification is empty and sent outside any transaction that writes, so no append waits for another's: what
//! it says is in the log, and whoever hears it looks there. One that is lost costs the time until the next poll.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};

use super::{advisory_locks::LISTENING, server_link::FailoverWatch};
use crate::store::{
    StoreError,
    conn::{Conn, Dialect, Through},
    fault::store_error,
};

const WORK: &str = "docket_work";
const LEASES: &str = "docket_leases";
const DUE: &str = "docket_due";
/// A coordinator began to listen: the others have somebody to tell.
const HERE: &str = "docket_here";

/// How long a connection for listening may take to come.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// What there may be news of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint {
    /// A task may be leased.
    pub work: bool,
    /// A lease may have been lost.
    pub leases: bool,
    /// A task's time may come sooner.
    pub due: bool,
}

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// News, perhaps one's own.
    Hint(Hint),
    /// A coordinator that listens, perhaps oneself.
    Coordinator,
}

/// See the module.
pub struct Hints {
    readers: PgPool,
    options: PgConnectOptions,
    through: Through,
    /// Whether others listen, as far as this knows.
    others: AtomicBool,
    failover: Arc<FailoverWatch>,
}

impl Hints {
    pub(super) fn new(
        readers: PgPool,
        options: PgConnectOptions,
        (through, failover): (Through, Arc<FailoverWatch>),
    ) -> Self {
        let options = options.application_name("docket hints");
        Self { readers, options, through, others: AtomicBool::new(true), failover }
    }

    /// Tells the others, if there are any.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn send(&self, hint: Hint) -> Result<(), StoreError> {
        if !self.others.load(Ordering::Relaxed) {
            return Ok(());
        }
        // One message, whatever it holds: a transaction of its own, also through a pooler.
        let sql = match (hint.work, hint.leases, hint.due) {
            (false, false, false) => return Ok(()),
            (true, false, false) => "NOTIFY docket_work",
            (false, true, false) => "NOTIFY docket_leases",
            (false, false, true) => "NOTIFY docket_due",
            (true, true, false) => "NOTIFY docket_work; NOTIFY docket_leases",
            (true, false, true) => "NOTIFY docket_work; NOTIFY docket_due",
            (false, true, true) => "NOTIFY docket_leases; NOTIFY docket_due",
            (true, true, true) => "NOTIFY docket_work; NOTIFY docket_leases; NOTIFY docket_due",
        };
        let failed = |source| store_error(Dialect::Postgres, "telling other coordinators", source);
        let mut conn = self.readers.acquire().await.map_err(failed)?;
        Conn::Postgres(&mut conn, self.through).control(sql).await.map_err(failed)
    }

    /// Listens, on a connection of its own. `None` where that cannot be: a pooler has no sessions.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn listen(&self) -> Result<Option<Ears>, StoreError> {
        match self.through {
            Through::Pooler => Ok(None),
            Through::Server => {
                let began = Instant::now();
                match self.begin().await {
                    Ok(listener) => Ok(Some(Ears { listener, began, failover: Arc::clone(&self.failover) })),
                    Err(source) => Err(store_error(Dialect::Postgres, "listening for hints", source)),
                }
            }
        }
    }

    async fn begin(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(CONNECT_MAX)
            .connect_with(self.options.clone())
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        // Whoever listens again must look again, and so must know.
        listener.eager_reconnect(false);
        sqlx::raw_sql(AssertSqlSafe(LISTENING.hold_sql())).execute(&mut listener).await?;
        listener.listen_all([WORK, LEASES, DUE, HERE]).await?;
        sqlx::raw_sql("NOTIFY docket_here").execute(&mut listener).await?;
        Ok(listener)
    }

    /// Learns whether anybody else listens.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn count(&self) -> Result<bool, StoreError> {
        let failed = |source| store_error(Dialect::Postgres, "counting coordinators", source);
        let mut conn = self.readers.acquire().await.map_err(failed)?;
        let rows = Conn::Postgres(&mut conn, self.through)
            .rows(&LISTENING.count_sql(), Vec::new())
            .await
            .map_err(failed)?;
        let others = rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0) > 1;
        self.others.store(others, Ordering::Relaxed);
        Ok(others)
    }
}

/// Somebody who listens.
pub struct Ears {
    listener: PgListener,
    /// When the connection began to be made.
    began: Instant,
    failover: Arc<FailoverWatch>,
}

impl Ears {
    /// What is heard next; `None` when the connection is gone, or its server takes no writes any more.
    pub async fn next(&mut self) -> Option<Heard> {
        let heard = tokio::select! {
            heard = self.listener.try_recv() => heard.ok().flatten()?,
            () = self.failover.wait_outdated(self.began) => return None,
        };
        let hint = Hint::default();
        Some(match heard.channel() {
            WORK => Heard::Hint(Hint { work: true, ..hint }),
            LEASES => Heard::Hint(Hint { leases: true, ..hint }),
            DUE => Heard::Hint(Hint { due: true, ..hint }),
            _ => Heard::Coordinator,
        })
    }
}
