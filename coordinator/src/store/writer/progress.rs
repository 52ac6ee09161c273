//! Progress of the store's writers. A lock that is never released, a hanging disk or an unreachable database
//! would otherwise go unnoticed: here it becomes a reason for `/readyz` and a log line.
//!
//! Invariants: time is monotonic, so a stepped clock is not a stall. Only a transaction that the database
//! executed, or that a decision refused, counts as progress: a stall lasts over all tries until one succeeds.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::store::WriterStall;

/// Time without progress, while work is waiting, after which a writer counts as stuck. Far above the longest
/// usual transaction and well below a lease.
const STALL_AFTER: Duration = Duration::from_secs(5);

/// Another session (PostgreSQL) or process (SQLite) holds a lock.
pub(crate) const LOCK_HELD: &str = "another session or process holds a lock it needs";

/// A standby, or an old primary after a failover.
pub(crate) const READ_ONLY: &str = "the database is read-only";

/// No connection, or none that lasts.
pub(crate) const UNREACHABLE: &str = "the database cannot be reached";

/// The progress of one writer.
#[derive(Debug, Default)]
pub(crate) struct WriterProgress(Mutex<WriterState>);

#[derive(Debug, Default)]
struct WriterState {
    /// Time since when it has had work and made no progress.
    stuck_since: Option<Instant>,
    /// Time since when it has been idle after a transaction.
    idle_since: Option<Instant>,
    doing: &'static str,
    in_progress: usize,
    last_error: Option<&'static str>,
}

impl WriterProgress {
    fn lock_state(&self) -> MutexGuard<'_, WriterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a transaction for this many requests begins.
    pub(crate) fn begin_transaction(&self, doing: &'static str, requests: usize) {
        let mut state = self.lock_state();
        if state.idle_since.take().is_some_and(|since| since.elapsed() >= STALL_AFTER) {
            // A failure before a long idle time says nothing about this transaction.
            state.stuck_since = None;
        }
        state.stuck_since.get_or_insert_with(Instant::now);
        state.doing = doing;
        state.in_progress = requests;
    }

    /// Records an obstacle to a try; the writer tries again.
    pub(crate) fn record_error(&self, obstacle: &'static str) {
        self.lock_state().last_error = Some(obstacle);
    }

    /// Records the end of the transaction, successful or not.
    pub(crate) fn end_transaction(&self, is_progress: bool) {
        let mut state = self.lock_state();
        state.in_progress = 0;
        state.idle_since = Some(Instant::now());
        if is_progress {
            state.stuck_since = None;
            state.last_error = None;
        }
    }

    /// Returns the writer's stall while this many requests wait in its queue.
    pub(crate) fn find_stall(&self, queued: usize) -> Option<WriterStall> {
        let state = self.lock_state();
        if state.in_progress + queued == 0 {
            // The failure was returned to the caller and nothing waits: the next request shows whether it
            // persists.
            return None;
        }
        let stalled_for = state.stuck_since?.elapsed();
        let WriterState { doing, in_progress: in_hand, last_error: obstacle, .. } = *state;
        let stall = WriterStall { stalled_for, doing, waiting: in_hand + queued, last_error: obstacle };
        (stalled_for >= STALL_AFTER).then_some(stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulate_stall(progress: &WriterProgress) {
        progress.begin_transaction("writing", 0);
        progress.lock_state().stuck_since = Instant::now().checked_sub(STALL_AFTER);
    }

    #[test]
    fn only_a_completed_transaction_ends_a_stall() {
        let progress = WriterProgress::default();
        assert_eq!(progress.find_stall(7), None, "nothing was asked of it");
        progress.begin_transaction("writing", 0);
        assert_eq!(progress.find_stall(7), None, "it has only begun");
        simulate_stall(&progress);
        progress.record_error(LOCK_HELD);
        let stall = progress.find_stall(7).expect("stuck");
        assert_eq!((stall.waiting, stall.last_error), (7, Some(LOCK_HELD)));
        assert!(stall.to_string().contains("no progress for 5 s"), "{stall}");
        progress.end_transaction(false);
        progress.begin_transaction("writing", 0);
        assert!(progress.find_stall(1).is_some(), "the next try is no progress yet");
        progress.end_transaction(false);
        assert_eq!(progress.find_stall(0), None, "nothing waits");
        progress.lock_state().idle_since = Instant::now().checked_sub(STALL_AFTER);
        progress.begin_transaction("writing", 0);
        assert_eq!(progress.find_stall(1), None, "what failed long ago says nothing about this transaction");
        simulate_stall(&progress);
        assert!(progress.find_stall(1).is_some());
        progress.end_transaction(true);
        assert_eq!(progress.find_stall(7), None);
        progress.begin_transaction("writing", 0);
        assert_eq!(progress.find_stall(1), None, "a new transaction has its whole time");
    }
}
