//! Which faults strike, whom, and after how many tasks: drawn from a seed before anything begins.

use std::collections::BTreeMap;

/// Draws of a splitmix64 generator: enough to choose victims, and the same for the same seed everywhere.
#[derive(Debug, Clone)]
pub struct Draws(u64);

impl Draws {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        pick(self.any(), end)
    }

    /// One from `from` to `to`, in milliseconds.
    fn ms(&mut self, from: u64, to: u64) -> u64 {
        from + self.any() % (to - from + 1)
    }
}

/// What a draw means where there are `end` to choose from; 0 where there are none.
pub fn pick(draw: u64, end: usize) -> usize {
    usize::try_from(draw % end.max(1) as u64).expect("below a usize")
}

/// Something that befalls the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of a run process.
    KillRun,
    /// kill -9 of a supervisor and all it has; it comes back after so long.
    KillWorker {
        /// How long it is away.
        away_ms: u64,
    },
    /// kill -9 of a coordinator; it comes back after so long.
    KillCoordinator {
        /// How long it is away.
        away_ms: u64,
    },
    /// A supervisor and its run processes are stopped for longer than a lease, and wake: zombies.
    SleepWorker {
        /// How long.
        ms: u64,
        /// Whether its run processes wake a moment before their supervisor does, which would kill them.
        runs_first: bool,
    },
    /// Only a supervisor is stopped for longer than a lease: its run processes write on while nobody renews.
    SleepSupervisor {
        /// How long.
        ms: u64,
    },
    /// A coordinator is stopped for longer than its term, and wakes.
    SleepCoordinator {
        /// How long.
        ms: u64,
    },
    /// The network between a worker and the coordinators is cut.
    CutLink {
        /// How long.
        ms: u64,
    },
    /// The disk under the log is full.
    FillDisk {
        /// How long.
        ms: u64,
    },
    /// PostgreSQL ends every session of the coordinators (`pg_terminate_backend`).
    EndSessions,
    /// A session of PostgreSQL dies by a signal: the server throws all others out and recovers.
    CrashSession,
    /// PostgreSQL is restarted in order: sessions are ended, a checkpoint is written.
    RestartFast,
    /// PostgreSQL is stopped at once, and recovers from its log.
    RestartImmediate,
}

impl Fault {
    /// Its name, for counting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillRun => "kill -9 of a run process",
            Self::KillWorker { .. } => "kill -9 of a worker",
            Self::KillCoordinator { .. } => "kill -9 of a coordinator",
            Self::SleepWorker { .. } => "a worker asleep beyond its leases",
            Self::SleepSupervisor { .. } => "a supervisor asleep beyond its leases",
            Self::SleepCoordinator { .. } => "a coordinator asleep",
            Self::CutLink { .. } => "network cut",
            Self::FillDisk { .. } => "full disk",
            Self::EndSessions => "PostgreSQL sessions ended",
            Self::CrashSession => "PostgreSQL session killed",
            Self::RestartFast => "PostgreSQL restarted (fast)",
            Self::RestartImmediate => "PostgreSQL restarted (immediate)",
        }
    }
}

/// A fault and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// When so many tasks are done.
    pub at_done: usize,
    /// What.
    pub fault: Fault,
    /// Decides whom, of those who are there then.
    pub victim: u64,
}

/// What can befall this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Possible {
    /// It stands on a PostgreSQL server of its own.
    pub postgres: bool,
    /// Its workers have networks, and its log a disk, of their own.
    pub namespaces: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// By their moments.
    pub strikes: Vec<Strike>,
}

/// For so many tasks the counts below are meant.
const TASKS: usize = 500;

impl Plan {
    /// Draws one for `tasks` tasks and leases of `lease_ms`. Whatever is possible strikes at least once.
    pub fn draw(seed: u64, tasks: usize, lease_ms: u64, possible: Possible) -> Self {
        type Draw = fn(&mut Draws, u64) -> Fault;
        let everywhere: [(usize, Draw); 6] = [
            (60, |_, _| Fault::KillRun),
            (8, |draws, lease| Fault::KillWorker { away_ms: draws.ms(0, lease) }),
            (8, |draws, lease| Fault::KillCoordinator { away_ms: draws.ms(0, lease) }),
            (8, |draws, lease| Fault::SleepWorker {
                ms: draws.ms(lease + lease / 4, 3 * lease),
                runs_first: draws.any().is_multiple_of(2),
            }),
            (6, |draws, lease| Fault::SleepSupervisor { ms: draws.ms(lease + lease / 4, 3 * lease) }),
            (5, |draws, lease| Fault::SleepCoordinator { ms: draws.ms(lease / 4, 2 * lease) }),
        ];
        let namespaces: [(usize, Draw); 2] = [
            (10, |draws, lease| Fault::CutLink { ms: draws.ms(lease / 4, 3 * lease) }),
            (3, |draws, lease| Fault::FillDisk { ms: draws.ms(lease / 4, lease) }),
        ];
        let postgres: [(usize, Draw); 4] = [
            (12, |_, _| Fault::EndSessions),
            (3, |_, _| Fault::CrashSession),
            (3, |_, _| Fault::RestartFast),
            (3, |_, _| Fault::RestartImmediate),
        ];
        let kinds = everywhere
            .iter()
            .chain(namespaces.iter().filter(|_| possible.namespaces))
            .chain(postgres.iter().filter(|_| possible.postgres));
        let mut draws = Draws::new(seed);
        let (first, last) = (tasks / 50, tasks * 9 / 10);
        let mut strikes = Vec::new();
        for (count, draw) in kinds {
            for _ in 0..(count * tasks / TASKS).max(1) {
                let at_done = first + draws.below(last - first + 1);
                let fault = draw(&mut draws, lease_ms);
                strikes.push(Strike { at_done, fault, victim: draws.any() });
            }
        }
        strikes.sort_by_key(|strike| strike.at_done);
        Self { strikes }
    }

    /// How often each fault strikes.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for strike in &self.strikes {
            *counts.entry(strike.fault.name()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Possible = Possible { postgres: true, namespaces: true };

    #[test]
    fn a_seed_is_one_plan() {
        let plan = Plan::draw(7, 500, 1000, ALL);
        assert_eq!(plan, Plan::draw(7, 500, 1000, ALL));
        assert_ne!(plan, Plan::draw(8, 500, 1000, ALL));
        assert!(plan.strikes.is_sorted_by_key(|strike| strike.at_done));
        assert!(plan.strikes.iter().all(|strike| (10..=450).contains(&strike.at_done)), "{plan:?}");
        assert_eq!(plan.strikes.len(), 129);
    }

    #[test]
    fn whatever_is_possible_strikes() {
        assert_eq!(Plan::draw(1, 20, 1000, ALL).counts().len(), 12);
        let alone = Possible { postgres: false, namespaces: false };
        assert_eq!(Plan::draw(1, 20, 1000, alone).counts().len(), 6);
    }

    #[test]
    fn a_zombie_sleeps_longer_than_its_lease() {
        for strike in Plan::draw(3, 500, 1000, ALL).strikes {
            if let Fault::SleepWorker { ms, .. } | Fault::SleepSupervisor { ms } = strike.fault {
                assert!((1250..=3000).contains(&ms), "{ms}");
            }
        }
    }
}
