//! Administration of a store: identity, shared secret, terms, rebuild, metrics, and the health of its
//! writers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use docket_schema::ids::Timestamp;

use super::{CoordinatorHints, StoreError, StoreFuture, TermOutcome, TermRequest};
use crate::metrics::HistogramSnapshot;

/// A difference between a projection and the log it is derived from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ProjectionDifference {
    pub table: &'static str,
    pub key: String,
    pub column: String,
    /// The value stored in the projection.
    pub stored: String,
    /// The value derived from the log.
    pub derived: String,
}

impl ProjectionDifference {
    pub(crate) fn new(table: &'static str, key: &str, column: &str, stored: &str, derived: &str) -> Self {
        Self {
            table,
            key: key.to_owned(),
            column: column.to_owned(),
            stored: stored.to_owned(),
            derived: derived.to_owned(),
        }
    }
}

/// Progress of a rebuild: streams examined and in total; zeros before it begins.
#[derive(Debug, Default)]
pub struct RebuildProgress {
    examined_streams: AtomicU64,
    total_streams: AtomicU64,
}

impl RebuildProgress {
    /// Returns the number of streams examined and in total.
    pub fn examined_and_total(&self) -> (u64, u64) {
        (self.examined_streams.load(Ordering::Relaxed), self.total_streams.load(Ordering::Relaxed))
    }

    /// Starts from zero; also called when a failed transaction is repeated.
    pub(crate) fn restart(&self, streams: u64) {
        self.examined_streams.store(0, Ordering::Relaxed);
        self.total_streams.store(streams, Ordering::Relaxed);
    }

    pub(crate) fn add_stream(&self) {
        self.examined_streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counters of a store since it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreMetrics {
    /// Appends by holders, followers and the inbox of runs that completed without a store failure.
    pub appends: u64,
    /// Commands and submits that completed without a store failure.
    pub commands: u64,
    /// Leases granted.
    pub leases: u64,
    /// Requests that failed because of the store.
    pub failed_requests: u64,
    /// Requests per transaction.
    pub batch_requests: HistogramSnapshot,
    /// Duration of these transactions, including retries.
    pub batch_times: HistogramSnapshot,
}

/// Administration of a store, shared by its coordinators and requested by people.
///
/// Errors: only [`StoreError`].
///
/// Invariants: the secret is created once and is the same for every coordinator of a store. At most one
/// holder has a term at a time by the store's clock. A rebuild changes projections only, never the log.
pub trait StoreAdmin {
    /// `sqlite` or `postgres`.
    fn backend(&self) -> &'static str;

    /// Returns the channel for wake-up hints to other coordinators; `None` if there can be no others.
    fn coordinator_hints(&self) -> Option<Arc<dyn CoordinatorHints>>;

    /// Returns the time of the database server that coordinators share; `None` if there is none.
    fn database_time(&self) -> StoreFuture<'_, Result<Option<Timestamp>, StoreError>>;

    /// Acquires a term or renews the caller's own.
    fn acquire_term(&self, term: TermRequest) -> StoreFuture<'_, Result<TermOutcome, StoreError>>;

    /// Returns the secret for run tokens: the existing one, or `fresh` if there is none yet.
    fn load_or_create_secret(&self, fresh: [u8; 32]) -> StoreFuture<'_, Result<[u8; 32], StoreError>>;

    /// Derives every projection from the log, compares, and corrects differences. Lease deadlines are not
    /// compared, because heartbeats are not events.
    fn rebuild_projections(
        &self,
        seen: Arc<RebuildProgress>,
    ) -> StoreFuture<'_, Result<Vec<ProjectionDifference>, StoreError>>;

    /// Returns counters since this store was opened.
    fn metrics(&self) -> StoreMetrics;

    /// Stops background work; acknowledged writes are durable.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// A stuck writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterStall {
    /// Time since its last progress.
    pub stalled_for: Duration,
    /// What it was doing when it last began something.
    pub doing: &'static str,
    /// Requests waiting for it.
    pub waiting: usize,
    /// Obstacle met by its last try, if a try failed.
    pub last_error: Option<&'static str>,
}

impl fmt::Display for WriterStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stalled_for, doing, waiting, last_error: obstacle } = self;
        write!(
            f,
            "the store's writer has made no progress for {} s ({doing}; requests waiting: {waiting})",
            stalled_for.as_secs()
        )?;
        obstacle.map_or(Ok(()), |obstacle| write!(f, ": {obstacle}"))
    }
}

/// Health of a store's writers.
pub trait WriterHealth {
    /// Returns the writer that has been stuck for longest, if any.
    fn writer_stall(&self) -> Option<WriterStall>;

    /// Checks that the database accepts writes. Only queried where connections may lead to another server
    /// than before: a PostgreSQL server may be a standby or may have been demoted.
    fn check_writable(&self) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Describes each session that holds a lock docket waits for, and how to end it. Empty if the database
    /// cannot tell.
    fn lock_holders(&self) -> StoreFuture<'_, Result<Vec<String>, StoreError>>;
}
