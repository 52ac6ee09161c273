//! Whether the store's writers make progress. A lock that is never given back, a disk that hangs or a database that is
//! gone would otherwise be silence: here it becomes a reason for `/readyz`, a line in the log, and an end that does not
//! wait for it.
//!
//! Invariants: time is monotonic, so a stepped clock is no stall. Only a transaction that the database carried out, or
//! that a decision refused, counts as progress: a stall lasts over all tries until one of them succeeds.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Answer, SqlStore, StoreError,
    ask::{Answered, Ask},
    conn::Db,
    postgres::{check_writable, find_lock_holders},
};

/// A writer without progress for so long, while work waits for it, is stuck. Far above the longest usual transaction,
/// well below a lease.
const STALL_AFTER: Duration = Duration::from_secs(5);

/// How long a store that is closed waits for its writers. What they have not committed by then was never acknowledged.
const CLOSE_MAX: Duration = Duration::from_secs(8);

/// Another session (PostgreSQL) or process (SQLite) holds a lock.
pub(super) const LOCK_HELD: &str = "another session or process holds a lock that it needs";

/// A standby, or an old primary after a failover.
pub(super) const READ_ONLY: &str = "the database is read-only";

/// No connection, or none that lasts.
pub(super) const UNREACHABLE: &str = "the database cannot be reached";

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
    pub obstacle: Option<&'static str>,
}

impl fmt::Display for WriterStall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stalled_for, doing, waiting, obstacle } = self;
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
    fn check_writable(&self) -> Answer<'_, Result<(), StoreError>>;

    /// A line for each session that holds a lock docket waits for, with what ends it. Empty where the database
    /// cannot tell.
    fn lock_holders(&self) -> Answer<'_, Result<Vec<String>, StoreError>>;
}

/// The progress of one writer.
#[derive(Debug, Default)]
pub(super) struct WriterProgress(Mutex<WriterState>);

#[derive(Debug, Default)]
struct WriterState {
    /// Since when it has had work and made no progress.
    stuck_since: Option<Instant>,
    /// Since when nothing is in hand, once a transaction has ended.
    idle_since: Option<Instant>,
    doing: &'static str,
    in_hand: usize,
    obstacle: Option<&'static str>,
}

impl WriterProgress {
    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer begins a transaction for these.
    pub(super) fn begin(&self, asks: &[&Ask]) {
        let mut state = self.state();
        if state.idle_since.take().is_some_and(|since| since.elapsed() >= STALL_AFTER) {
            // What failed before a long idle time says nothing about this transaction.
            state.stuck_since = None;
        }
        state.stuck_since.get_or_insert_with(Instant::now);
        state.doing = asks.first().map_or("writing", |ask| ask.doing());
        state.in_hand = asks.len();
    }

    /// A try failed at this; the writer tries again.
    pub(super) fn note_obstacle(&self, obstacle: &'static str) {
        self.state().obstacle = Some(obstacle);
    }

    /// The transaction has ended, one way or the other.
    pub(super) fn end(&self, is_progress: bool) {
        let mut state = self.state();
        state.in_hand = 0;
        state.idle_since = Some(Instant::now());
        if is_progress {
            state.stuck_since = None;
            state.obstacle = None;
        }
    }

    fn find_stall(&self, queued: usize) -> Option<WriterStall> {
        let state = self.state();
        if state.in_hand + queued == 0 {
            // What failed was answered, and nothing waits: the next request tells.
            return None;
        }
        let stalled_for = state.stuck_since?.elapsed();
        let WriterState { doing, in_hand, obstacle, .. } = *state;
        let stall = WriterStall { stalled_for, doing, waiting: in_hand + queued, obstacle };
        (stalled_for >= STALL_AFTER).then_some(stall)
    }
}

/// Whether a transaction with these answers is progress: the database took at least one of them, or a decision
/// refused it.
pub(super) fn is_progress(answers: &[Answered]) -> bool {
    answers.iter().any(|answer| answer.fault().is_none())
}

impl WriterHealth for SqlStore {
    fn writer_stall(&self) -> Option<WriterStall> {
        let queued: Vec<usize> = {
            let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.iter().map(|lane| lane.max_capacity() - lane.capacity()).collect()
        };
        let progress: Vec<Arc<WriterProgress>> = self.meters.writers();
        let stalls = progress.iter().enumerate().filter_map(|(nth, writer)| {
            // A store that was closed has no lanes left.
            writer.find_stall(queued.get(nth).copied().unwrap_or(0))
        });
        stalls.max_by_key(|stall| stall.stalled_for)
    }

    fn check_writable(&self) -> Answer<'_, Result<(), StoreError>> {
        Box::pin(check_writable(&self.db))
    }

    fn lock_holders(&self) -> Answer<'_, Result<Vec<String>, StoreError>> {
        Box::pin(async move {
            match &self.db {
                Db::Sqlite { .. } => Ok(Vec::new()),
                Db::Postgres { .. } => find_lock_holders(&self.db).await,
            }
        })
    }
}

impl SqlStore {
    /// Ends the writers and the connections for reading, and does not wait for what is stuck.
    pub(super) async fn end(&self) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let writers = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let ending = async {
            for writer in writers {
                // The sender is dropped, never used.
                let _ = writer.await;
            }
            match &self.db {
                Db::Sqlite { pool, scans } => {
                    scans.close();
                    pool.close().await;
                }
                Db::Postgres { pool, .. } => pool.close().await,
            }
        };
        if tokio::time::timeout(CLOSE_MAX, ending).await.is_err() {
            let why = self.writer_stall().map_or_else(String::new, |stall| format!(" ({stall})"));
            tracing::error!(
                "the store did not close within {} s and is left as it is{why}; all that was acknowledged is kept",
                CLOSE_MAX.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began_long_ago(progress: &WriterProgress) {
        progress.begin(&[]);
        progress.state().stuck_since = Instant::now().checked_sub(STALL_AFTER);
    }

    #[test]
    fn only_a_transaction_that_was_carried_out_ends_a_stall() {
        let progress = WriterProgress::default();
        assert_eq!(progress.find_stall(7), None, "nothing was asked of it");
        progress.begin(&[]);
        assert_eq!(progress.find_stall(7), None, "it has only begun");
        began_long_ago(&progress);
        progress.note_obstacle(LOCK_HELD);
        let stall = progress.find_stall(7).expect("stuck");
        assert_eq!((stall.waiting, stall.obstacle), (7, Some(LOCK_HELD)));
        assert!(stall.to_string().contains("no progress for 5 s"), "{stall}");
        progress.end(false);
        progress.begin(&[]);
        assert!(progress.find_stall(1).is_some(), "the next try is no progress yet");
        progress.end(false);
        assert_eq!(progress.find_stall(0), None, "nothing waits");
        progress.state().idle_since = Instant::now().checked_sub(STALL_AFTER);
        progress.begin(&[]);
        assert_eq!(progress.find_stall(1), None, "what failed long ago says nothing about this transaction");
        began_long_ago(&progress);
        assert!(progress.find_stall(1).is_some());
        progress.end(true);
        assert_eq!(progress.find_stall(7), None);
        progress.begin(&[]);
        assert_eq!(progress.find_stall(1), None, "a new transaction has its whole time");
    }
}
