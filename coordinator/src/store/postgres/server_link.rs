//! Connections of writers, readers and listeners to the server, and their replacement after a failover.
//!
//! After a failover the old primary comes back read-only or as a standby, and existing connections would stay
//! with it forever: reads are stale, writes fail. So each new connection of a writer is checked once, and
//! when a writer meets a read-only server, all older connections are closed, and new ones follow the address to
//! the new primary.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::Notify;

use crate::store::db::{DbConn, PostgresEndpoint};

/// A writer meets a read-only server on each of its tries; other connections are replaced no more often than
/// this.
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);

/// Records when a writer last met a server that accepts no writes.
#[derive(Debug, Default)]
pub(super) struct FailoverWatch {
    read_only_seen_at: Mutex<Option<Instant>>,
    changed: Notify,
}

impl FailoverWatch {
    /// Records that a writer met a read-only server.
    pub(super) fn note_read_only(&self) {
        let mut seen_at = self.read_only_seen_at.lock().unwrap_or_else(PoisonError::into_inner);
        if seen_at.is_some_and(|at| at.elapsed() < REPLACE_INTERVAL) {
            return;
        }
        if seen_at.is_none() {
            tracing::warn!(
                "the database accepts no writes; reconnecting until the address leads to the primary"
            );
        }
        *seen_at = Some(Instant::now());
        drop(seen_at);
        self.changed.notify_waiters();
    }

    /// Whether a connection of this age was opened before the server was last seen read-only.
    fn is_outdated(&self, age: Duration) -> bool {
        let seen_at = self.read_only_seen_at.lock().unwrap_or_else(PoisonError::into_inner);
        seen_at.is_some_and(|at| age >= at.elapsed())
    }

    /// Waits until a connection opened at `began` has to be replaced.
    pub(super) async fn wait_outdated(&self, began: Instant) {
        loop {
            // Registered before the check, so that nothing recorded in between is missed.
            let changed = self.changed.notified();
            if self.is_outdated(began.elapsed()) {
                return;
            }
            changed.await;
        }
    }
}

/// Opens writers' connections to the server.
#[derive(Debug, Clone)]
pub(super) struct ServerConnector {
    options: PgConnectOptions,
    pub(super) endpoint: PostgresEndpoint,
    pub(super) failover: Arc<FailoverWatch>,
}

impl ServerConnector {
    pub(super) fn new(options: PgConnectOptions, through: PostgresEndpoint) -> Self {
        Self { options, endpoint: through, failover: Arc::default() }
    }

    /// Opens a connection to a server that accepts writes.
    pub(super) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut conn = self.options.connect().await?;
        DbConn::Postgres(&mut conn, self.endpoint).probe_write().await?;
        Ok(conn)
    }

    /// Opens the readers' pool, which follows the writers to another server.
    pub(super) async fn connect_readers(
        &self,
        pool: PgPoolOptions,
        options: PgConnectOptions,
    ) -> Result<PgPool, sqlx::Error> {
        let failover = Arc::clone(&self.failover);
        let pool = pool.before_acquire(move |_, meta| {
            let is_current = !failover.is_outdated(meta.age);
            Box::pin(async move { Ok(is_current) })
        });
        pool.connect_with(options).await
    }
}
