//! Wake-up hints between coordinators of one PostgreSQL database.
//!
//! A notification is empty and sent outside any writing transaction, so no append waits for another's: the
//! change is in the log, and a coordinator that receives the hint looks there. A lost hint only costs the
//! time until the next poll.

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
    CoordinatorHints, HintListener, HintMessage, StoreError, StoreFuture, WakeupHint,
    db::{DbConn, PostgresEndpoint, SqlDialect, advisory_locks::LISTENING, store_error},
};

const TASK_AVAILABLE_CHANNEL: &str = "docket_work";
const LEASE_LOST_CHANNEL: &str = "docket_leases";
const DUE_SOONER_CHANNEL: &str = "docket_due";
/// Announces that a coordinator began to listen, so that others send hints.
const LISTENER_PRESENT_CHANNEL: &str = "docket_here";

/// How long establishing a listening connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Hints over LISTEN and NOTIFY; see the module.
pub(super) struct PgCoordinatorHints {
    readers: PgPool,
    options: PgConnectOptions,
    endpoint: PostgresEndpoint,
    /// Whether others listen, as last observed.
    has_others: AtomicBool,
    failover: Arc<FailoverWatch>,
}

impl PgCoordinatorHints {
    pub(super) fn new(
        readers: PgPool,
        options: PgConnectOptions,
        through: PostgresEndpoint,
        failover: Arc<FailoverWatch>,
    ) -> Self {
        let options = options.application_name("docket hints");
        Self { readers, options, endpoint: through, has_others: AtomicBool::new(true), failover }
    }

    async fn connect_listener(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_with(self.options.clone())
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        // After a reconnect the listener must poll for missed changes, so it has to know about it.
        listener.eager_reconnect(false);
        sqlx::raw_sql(AssertSqlSafe(LISTENING.hold_sql())).execute(&mut listener).await?;
        listener
            .listen_all([
                TASK_AVAILABLE_CHANNEL,
                LEASE_LOST_CHANNEL,
                DUE_SOONER_CHANNEL,
                LISTENER_PRESENT_CHANNEL,
            ])
            .await?;
        sqlx::raw_sql("NOTIFY docket_here").execute(&mut listener).await?;
        Ok(listener)
    }
}

impl CoordinatorHints for PgCoordinatorHints {
    fn send(&self, hint: WakeupHint) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if !self.has_others.load(Ordering::Relaxed) {
                return Ok(());
            }
            // One message in any case: a separate transaction, which also works through a pooler.
            let sql = match (hint.task_available, hint.lease_lost, hint.due_sooner) {
                (false, false, false) => return Ok(()),
                (true, false, false) => "NOTIFY docket_work",
                (false, true, false) => "NOTIFY docket_leases",
                (false, false, true) => "NOTIFY docket_due",
                (true, true, false) => "NOTIFY docket_work; NOTIFY docket_leases",
                (true, false, true) => "NOTIFY docket_work; NOTIFY docket_due",
                (false, true, true) => "NOTIFY docket_leases; NOTIFY docket_due",
                (true, true, true) => "NOTIFY docket_work; NOTIFY docket_leases; NOTIFY docket_due",
            };
            let failed = |source| store_error(SqlDialect::Postgres, "telling other coordinators", source);
            let mut conn = self.readers.acquire().await.map_err(failed)?;
            DbConn::Postgres(&mut conn, self.endpoint).execute_batch(sql).await.map_err(failed)
        })
    }

    fn open_listener(&self) -> StoreFuture<'_, Result<Option<Box<dyn HintListener>>, StoreError>> {
        Box::pin(async move {
            if self.endpoint == PostgresEndpoint::Pooler {
                return Ok(None);
            }
            let began = Instant::now();
            let failed = |source| store_error(SqlDialect::Postgres, "listening for hints", source);
            let listener = self.connect_listener().await.map_err(failed)?;
            let listener: Box<dyn HintListener> =
                Box::new(PgHintListener { listener, began, failover: Arc::clone(&self.failover) });
            Ok(Some(listener))
        })
    }

    fn has_other_listener(&self) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let failed = |source| store_error(SqlDialect::Postgres, "counting coordinators", source);
            let mut conn = self.readers.acquire().await.map_err(failed)?;
            let mut conn = DbConn::Postgres(&mut conn, self.endpoint);
            let rows = conn.query_rows(&LISTENING.count_sql(), Vec::new()).await.map_err(failed)?;
            let others = rows.first().and_then(|row| row.get_i64(0).ok()).unwrap_or(0) > 1;
            self.has_others.store(others, Ordering::Relaxed);
            Ok(others)
        })
    }
}

struct PgHintListener {
    listener: PgListener,
    /// When connecting began.
    began: Instant,
    failover: Arc<FailoverWatch>,
}

impl HintListener for PgHintListener {
    fn next_message(&mut self) -> StoreFuture<'_, Option<HintMessage>> {
        Box::pin(async move {
            let heard = tokio::select! {
                heard = self.listener.try_recv() => heard.ok().flatten()?,
                () = self.failover.wait_outdated(self.began) => return None,
            };
            let hint = WakeupHint::default();
            Some(match heard.channel() {
                TASK_AVAILABLE_CHANNEL => HintMessage::Hint(WakeupHint { task_available: true, ..hint }),
                LEASE_LOST_CHANNEL => HintMessage::Hint(WakeupHint { lease_lost: true, ..hint }),
                DUE_SOONER_CHANNEL => HintMessage::Hint(WakeupHint { due_sooner: true, ..hint }),
                _ => HintMessage::ListenerPresent,
            })
        })
    }
}
