//! Runs that wait for a rate limit of their model's provider: those that requested a permit from this
//! coordinator and have not received it yet. Held in memory per process: a waiting run repeats its request
//! every few seconds, so an entry that is not renewed is outdated.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use docket_schema::{
    api::ProviderWait,
    ids::{Epoch, RunId, Timestamp},
    system::ProviderLimits,
    task::{TaskRecord, TaskState},
};

/// Most runs remembered: more than a coordinator's connections allow to wait at a time.
const RUNS_MAX: usize = 10_000;

/// Grace, in milliseconds, after which a run that has not repeated its request no longer waits.
const RENEWAL_GRACE_MS: u64 = 5_000;

/// A run whose permit was refused or is in the future.
#[derive(Debug, Clone)]
pub(super) struct PermitWait {
    pub(super) epoch: Epoch,
    pub(super) provider: String,
    pub(super) limits: ProviderLimits,
    /// When it began to wait.
    pub(super) since: Timestamp,
    /// Earliest time of its permit; `None` if unknown.
    pub(super) until: Option<Timestamp>,
    /// When it will repeat its request or make its call.
    pub(super) asks_again_at: Timestamp,
}

/// The waiting runs; see the module.
#[derive(Debug, Default)]
pub(crate) struct PermitWaiters(Mutex<HashMap<RunId, PermitWait>>);

impl PermitWaiters {
    /// Records that a run has waited since `wait.since`, or since earlier if it was already waiting.
    pub(super) fn insert(&self, run: RunId, wait: PermitWait) {
        let now = wait.since;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= RUNS_MAX {
            all.retain(|_, wait| wait.is_waiting(now));
        }
        let before = all.get(&run).filter(|before| before.epoch == wait.epoch && before.is_waiting(now));
        if before.is_none() && all.len() >= RUNS_MAX {
            return;
        }
        let since = before.map_or(now, |wait| wait.since);
        all.insert(run, PermitWait { since, ..wait });
    }

    /// Records that a run got its permit.
    pub(super) fn remove(&self, run: RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    /// Returns what a task's run waits for, if anything.
    pub(crate) fn find_wait(&self, task: &TaskRecord, now: Timestamp) -> Option<ProviderWait> {
        let run = task.run.filter(|_| task.state == TaskState::Running)?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = all.get(&run).filter(|wait| wait.epoch == task.epoch && wait.is_waiting(now))?;
        Some(ProviderWait {
            task: task.id,
            provider: wait.provider.clone(),
            limits: wait.limits,
            since: wait.since,
            until: wait.until,
        })
    }
}

impl PermitWait {
    fn is_waiting(&self, now: Timestamp) -> bool {
        match self.until {
            // It has its permit and continues at that time.
            Some(until) if until <= self.asks_again_at => now < until,
            Some(_) | None => now < self.asks_again_at.plus_ms(RENEWAL_GRACE_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn unrenewed_waits_expire_and_memory_is_bounded() {
        let waits = PermitWaiters::default();
        let at = |ms: u64| Timestamp(1_000_000).plus_ms(ms);
        let of = |n: u128, now, until| {
            let wait = PermitWait {
                epoch: Epoch(1),
                provider: "openai".to_owned(),
                limits: ProviderLimits::default(),
                since: now,
                until,
                asks_again_at: now.plus_ms(10_000),
            };
            waits.insert(RunId(Uuid::from_u128(n)), wait);
        };
        let on = |n: u128, now| {
            let all = waits.0.lock().expect("whole");
            all.get(&RunId(Uuid::from_u128(n))).filter(|wait| wait.is_waiting(now)).map(|wait| wait.since)
        };
        // It repeats its request after 10 s; its permit is far in the future.
        of(1, at(0), Some(at(3_600_000)));
        assert_eq!((on(1, at(14_999)), on(1, at(15_000))), (Some(at(0)), None));
        of(1, at(10_000), Some(at(3_600_000)));
        assert_eq!(on(1, at(20_000)), Some(at(0)), "since it waits, not since it asked last");
        // It has its permit and continues at that time.
        of(2, at(0), Some(at(10_000)));
        assert_eq!((on(2, at(9_999)), on(2, at(10_000))), (Some(at(0)), None));
        for n in 0..RUNS_MAX as u128 + 100 {
            of(n + 10, at(20_000), None);
        }
        assert_eq!(waits.0.lock().expect("whole").len(), RUNS_MAX);
        of(99_999_999, at(60_000), None);
        assert_eq!(waits.0.lock().expect("whole").len(), 1, "what is past makes room");
    }
}
