//! What running a store takes beside its contents: identity, shared secret, terms, rebuild, figures, health of its writers.

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
    /// Table.
    pub table: &'static str,
    /// Row.
    pub key: String,
    /// Column.
    pub column: String,
    /// The stored value.
    pub stored: String,
    /// The value that the log gives.
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

/// Progress of a rebuild: streams examined, and of how many; zeros before it begins.
#[derive(Debug, Default)]
pub struct RebuildProgress {
    examined_streams: AtomicU64,
    total_streams: AtomicU64,
}

impl RebuildProgress {
    /// Streams that were examined, and how many there are.
    pub fn examined_and_total(&self) -> (u64, u64) {
        (self.examined_streams.load(Ordering::Relaxed), self.total_streams.load(Ordering::Relaxed))
    }

    /// Starts from zero, also where a transaction that failed is tried again.
    pub(crate) fn restart(&self, streams: u64) {
        self.examined_streams.store(0, Ordering::Relaxed);
        self.total_streams.store(streams, Ordering::Relaxed);
    }

    pub(crate) fn add_stream(&self) {
        self.examined_streams.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the store did since it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreMetrics {
    /// Appends by holders, followers and the inbox of runs that were answered without a fault of the store.
    pub appends: u64,
    /// Commands and submits likewise.
    pub commands: u64,
    /// Leases that were granted.
    pub leases: u64,
    /// Requests that the store could not carry out.
    pub failed_requests: u64,
    /// How many requests shared a transaction.
    pub batch_requests: HistogramSnapshot,
    /// How long such a transaction took, with all its tries.
    pub batch_times: HistogramSnapshot,
}

/// Runs a store: what its coordinators share, and what a person asks of it.
///
/// Errors: [`StoreError`] alone.
///
/// Invariants: the secret is made once and is the same for every coordinator of a store. At most one holder has a term at
/// a time by the store's clock. A rebuild changes projections alone, never the log.
pub trait StoreAdmin {
    /// `sqlite` or `postgres`.
    fn backend(&self) -> &'static str;

    /// The way to tell other coordinators of the store that there is news; `None` if there can be no others.
    fn coordinator_hints(&self) -> Option<Arc<dyn CoordinatorHints>>;

    /// The time of the server that all coordinators of the store share; `None` if there is none.
    fn database_time(&self) -> StoreFuture<'_, Result<Option<Timestamp>, StoreError>>;

    /// Takes a term, or continues the caller's own.
    fn acquire_term(&self, term: TermRequest) -> StoreFuture<'_, Result<TermOutcome, StoreError>>;

    /// The secret that run tokens are made with: `fresh`, or the one that was made before.
    fn load_or_create_secret(&self, fresh: [u8; 32]) -> StoreFuture<'_, Result<[u8; 32], StoreError>>;

    /// Derives every projection from the log, compares, and writes what the log says.
    /// Lease deadlines are not compared: heartbeats are no events.
    fn rebuild_projections(
        &self,
        seen: Arc<RebuildProgress>,
    ) -> StoreFuture<'_, Result<Vec<ProjectionDifference>, StoreError>>;

    /// What this store did since it was opened here.
    fn metrics(&self) -> StoreMetrics;

    /// Ends background work; what was acknowledged is durable.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// A writer that is stuck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterStall {
    /// How long it has made no progress.
    pub stalled_for: Duration,
    /// What it was doing when it last began something.
    pub doing: &'static str,
    /// Requests that wait for it.
    pub waiting: usize,
    /// What its last try failed at, where one has failed.
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

/// Whether the writers of a store make progress.
pub trait WriterHealth {
    /// The writer that has been stuck for longest, if one is.
    fn writer_stall(&self) -> Option<WriterStall>;

    /// Checks that the database takes writes now. Only asked where connections may lead to another server than
    /// before: a PostgreSQL server may be a standby, or have been demoted.
    fn check_writable(&self) -> StoreFuture<'_, Result<(), StoreError>>;

    /// A line for each session that holds a lock docket waits for, with what ends it. Empty where the database
    /// cannot tell.
    fn lock_holders(&self) -> StoreFuture<'_, Result<Vec<String>, StoreError>>;
}
