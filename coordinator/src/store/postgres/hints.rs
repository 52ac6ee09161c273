//! Hints between coordinators of one database: that there is news, never what.
//!
//! A notification is empty and sent outside any transaction that writes, so no append waits for another's: the news
//! is in the log, and a coordinator that hears the hint looks there. A lost hint costs the time until the next poll.

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

use super::server_link::FailoverWatch;
use crate::store::{
    CoordinatorHints, Heard, Hint, HintListener, StoreError, StoreFuture,
    db::{Conn, Dialect, Through, advisory_locks::LISTENING, store_error},
};

const WORK: &str = "docket_work";
const LEASES: &str = "docket_leases";
const DUE: &str = "docket_due";
/// A coordinator began to listen: the others have somebody to tell.
const HERE: &str = "docket_here";

/// How long a connection for listening may take to come.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Hints {
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
        through: Through,
        failover: Arc<FailoverWatch>,
    ) -> Self {
        let options = options.application_name("docket hints");
        Self { readers, options, through, others: AtomicBool::new(true), failover }
    }

    async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(CONNECT_MAX)
            .connect_with(self.options.clone())
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        // A listener that connects again must look for news, and so must know.
        listener.eager_reconnect(false);
        sqlx::raw_sql(AssertSqlSafe(LISTENING.hold_sql())).execute(&mut listener).await?;
        listener.listen_all([WORK, LEASES, DUE, HERE]).await?;
        sqlx::raw_sql("NOTIFY docket_here").execute(&mut listener).await?;
        Ok(listener)
    }
}

impl CoordinatorHints for Hints {
    fn send(&self, hint: Hint) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
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
        })
    }

    fn listen(&self) -> StoreFuture<'_, Result<Option<Box<dyn HintListener>>, StoreError>> {
        Box::pin(async move {
            if self.through == Through::Pooler {
                return Ok(None);
            }
            let began = Instant::now();
            let failed = |source| store_error(Dialect::Postgres, "listening for hints", source);
            let listener = self.connect().await.map_err(failed)?;
            let listener: Box<dyn HintListener> =
                Box::new(PgHintListener { listener, began, failover: Arc::clone(&self.failover) });
            Ok(Some(listener))
        })
    }

    fn count(&self) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let failed = |source| store_error(Dialect::Postgres, "counting coordinators", source);
            let mut conn = self.readers.acquire().await.map_err(failed)?;
            let mut conn = Conn::Postgres(&mut conn, self.through);
            let rows = conn.rows(&LISTENING.count_sql(), Vec::new()).await.map_err(failed)?;
            let others = rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0) > 1;
            self.others.store(others, Ordering::Relaxed);
            Ok(others)
        })
    }
}

struct PgHintListener {
    listener: PgListener,
    /// When the connection began to be made.
    began: Instant,
    failover: Arc<FailoverWatch>,
}

impl HintListener for PgHintListener {
    fn next(&mut self) -> StoreFuture<'_, Option<Heard>> {
        Box::pin(async move {
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
        })
    }
}
