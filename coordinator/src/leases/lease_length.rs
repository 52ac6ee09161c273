//! Adaptive lease length: starts at the configured length and grows while living workers lose leases.
//!
//! A short lease hands over a dead worker's tasks quickly. On a busy machine it can be shorter than the time
//! a live worker needs to renew it, and then tasks move in circles: taken over, restarted, lost again. The
//! evidence is a worker heard from after its lease expired. Each such worker doubles the length, up to
//! [`GROWN_MS_MAX`]; a longer configured length is kept.
//!
//! Invariant: the length never falls below the configured one and never decreases while the process lives.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use docket_schema::ids::IncarnationId;

/// Largest length reached by growth, in milliseconds: the default length.
const GROWN_MS_MAX: u64 = 30_000;
/// Most workers remembered as presumed dead; the oldest is dropped first.
const PRESUMED_DEAD_MAX: usize = 1024;

/// Current lease length of a coordinator; see the module.
#[derive(Debug)]
pub(crate) struct LeaseLength {
    configured_ms: u64,
    current_ms: AtomicU64,
    /// Workers whose lease expired and that have not been heard from since.
    presumed_dead: Mutex<VecDeque<IncarnationId>>,
    /// Whether there are any. Checked on most requests without taking the lock.
    has_presumed_dead: AtomicBool,
}

impl LeaseLength {
    /// Starts with a lease length of `configured_ms` milliseconds.
    pub(crate) fn new(configured_ms: u64) -> Self {
        Self {
            configured_ms,
            current_ms: AtomicU64::new(configured_ms),
            presumed_dead: Mutex::default(),
            has_presumed_dead: AtomicBool::new(false),
        }
    }

    /// Returns the configured length, in milliseconds.
    pub(crate) const fn configured_ms(&self) -> u64 {
        self.configured_ms
    }

    /// Returns the current length for granted or renewed leases, in milliseconds.
    pub(crate) fn current_ms(&self) -> u64 {
        self.current_ms.load(Ordering::Relaxed)
    }

    /// Records that a lease of `worker` expired: the worker is dead or late.
    pub(crate) fn record_expiry(&self, worker: IncarnationId) {
        let mut presumed_dead = self.presumed_dead.lock().unwrap_or_else(PoisonError::into_inner);
        if presumed_dead.contains(&worker) {
            return;
        }
        if presumed_dead.len() == PRESUMED_DEAD_MAX {
            presumed_dead.pop_front();
        }
        presumed_dead.push_back(worker);
        self.has_presumed_dead.store(true, Ordering::Relaxed);
    }

    /// Records a request from `worker`. If its lease had expired it was late, not dead, and leases grow.
    pub(crate) fn record_contact(&self, worker: IncarnationId) {
        if !self.has_presumed_dead.load(Ordering::Relaxed) {
            return;
        }
        let mut presumed_dead = self.presumed_dead.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = presumed_dead.iter().position(|dead| *dead == worker) else { return };
        presumed_dead.remove(at);
        self.has_presumed_dead.store(!presumed_dead.is_empty(), Ordering::Relaxed);
        // Under the lock, so that two late workers at once count as two steps.
        let before = self.current_ms();
        let after = before.saturating_mul(2).min(GROWN_MS_MAX).max(before);
        if after > before {
            self.current_ms.store(after, Ordering::Relaxed);
            tracing::warn!(
                "worker {worker} is alive, but was too late to renew a lease of {before} ms: new leases last {after} ms"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(n: u128) -> IncarnationId {
        IncarnationId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn only_contact_after_an_expired_lease_lengthens_leases() {
        let length = LeaseLength::new(1500);
        length.record_contact(incarnation(1));
        assert_eq!(length.current_ms(), 1500, "no lease expired");
        length.record_expiry(incarnation(1));
        length.record_expiry(incarnation(1));
        length.record_contact(incarnation(2));
        assert_eq!(length.current_ms(), 1500, "worker 1 may be dead");
        length.record_contact(incarnation(1));
        length.record_contact(incarnation(1));
        assert_eq!(length.current_ms(), 3000, "once for each expiry");
    }

    #[test]
    fn leases_grow_to_the_default_length_and_no_further() {
        let length = LeaseLength::new(1500);
        for _ in 0..10 {
            length.record_expiry(incarnation(1));
            length.record_contact(incarnation(1));
        }
        assert_eq!(length.current_ms(), GROWN_MS_MAX);
        let configured = LeaseLength::new(60_000);
        configured.record_expiry(incarnation(1));
        configured.record_contact(incarnation(1));
        assert_eq!(configured.current_ms(), 60_000);
    }

    #[test]
    fn oldest_presumed_dead_worker_is_forgotten() {
        let length = LeaseLength::new(1000);
        for n in 0..=PRESUMED_DEAD_MAX as u128 {
            length.record_expiry(incarnation(n));
        }
        length.record_contact(incarnation(0));
        assert_eq!(length.current_ms(), 1000);
        length.record_contact(incarnation(1));
        assert_eq!(length.current_ms(), 2000);
    }
}
