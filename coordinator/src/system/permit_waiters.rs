//! Which runs wait for a limit on their model's provider: those that asked this coordinator for their moment and did
//! not get it yet. In memory, of this process: a run that waits asks again every few seconds, so that what is not renewed
//! is past.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use docket_schema::{
    ids::{Epoch, RunId, Timestamp},
    system::ProviderLimits,
    task::{TaskRecord, TaskState},
    wire::ProviderWait,
};

/// Runs that are remembered: more than a coordinator's connections let wait at a time.
const RUNS_MAX: usize = 10_000;

/// A run that has not asked again by then does so no more.
const LATE_MS: u64 = 5_000;

#[derive(Debug, Clone)]
struct Wait {
    epoch: Epoch,
    provider: String,
    limits: ProviderLimits,
    since: Timestamp,
    until: Option<Timestamp>,
    asks_again_at: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<HashMap<RunId, Wait>>);

impl Waits {
    /// A run was not let through, or not yet: it asks again, or goes on, after `wait_ms`; not before `until`.
    pub(super) fn waits(
        &self,
        (run, epoch): (RunId, Epoch),
        (provider, limits): (&str, ProviderLimits),
        (now, wait_ms): (Timestamp, u64),
        until: Option<Timestamp>,
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= RUNS_MAX {
            all.retain(|_, wait| wait.is_on(now));
        }
        let before = all.get(&run).filter(|wait| wait.epoch == epoch && wait.is_on(now));
        if before.is_none() && all.len() >= RUNS_MAX {
            return;
        }
        let since = before.map_or(now, |wait| wait.since);
        let (provider, asks_again_at) = (provider.to_owned(), now.plus_ms(wait_ms));
        all.insert(run, Wait { epoch, provider, limits, since, until, asks_again_at });
    }

    /// It was let through.
    pub(super) fn goes_on(&self, run: RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    /// What a task's run waits for, if it does.
    pub(crate) fn of(&self, task: &TaskRecord, now: Timestamp) -> Option<ProviderWait> {
        let run = task.run.filter(|_| task.state == TaskState::Running)?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = all.get(&run).filter(|wait| wait.epoch == task.epoch && wait.is_on(now))?;
        Some(ProviderWait {
            task: task.id,
            provider: wait.provider.clone(),
            limits: wait.limits,
            since: wait.since,
            until: wait.until,
        })
    }
}

impl Wait {
    fn is_on(&self, now: Timestamp) -> bool {
        match self.until {
            // It has its moment, and goes on then.
            Some(until) if until <= self.asks_again_at => now < until,
            Some(_) | None => now < self.asks_again_at.plus_ms(LATE_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_not_renewed_is_past_and_what_is_kept_is_bounded() {
        let waits = Waits::default();
        let limits = ProviderLimits::default();
        let at = |ms: u64| Timestamp(1_000_000).plus_ms(ms);
        let of = |n: u128, now, until| {
            let run = RunId(Uuid::from_u128(n));
            waits.waits((run, Epoch(1)), ("openai", limits), (now, 10_000), until);
        };
        let on = |n: u128, now| {
            let all = waits.0.lock().expect("whole");
            all.get(&RunId(Uuid::from_u128(n))).filter(|wait| wait.is_on(now)).map(|wait| wait.since)
        };
        // It asks again after 10 s; its moment is far off.
        of(1, at(0), Some(at(3_600_000)));
        assert_eq!((on(1, at(14_999)), on(1, at(15_000))), (Some(at(0)), None));
        of(1, at(10_000), Some(at(3_600_000)));
        assert_eq!(on(1, at(20_000)), Some(at(0)), "since it waits, not since it asked last");
        // It has its moment, and goes on then.
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
