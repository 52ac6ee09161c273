//! A plan of faults: which ones occur, on which victim, and after how many finished tasks. Drawn
//! from a seed before the run starts.

use std::collections::BTreeMap;

/// A splitmix64 generator: good enough to choose victims, and reproducible everywhere from the same
/// seed.
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn next_below(&mut self, end: usize) -> usize {
        choose_index(self.next_u64(), end)
    }

    /// Returns a duration between `from` and `to`, in milliseconds.
    fn next_ms(&mut self, from: u64, to: u64) -> u64 {
        from + self.next_u64() % (to - from + 1)
    }
}

/// Maps a draw to one of `end` choices; 0 if there are none.
pub fn choose_index(draw: u64, end: usize) -> usize {
    usize::try_from(draw % end.max(1) as u64).expect("below a usize")
}

/// A fault injected into the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChaosFault {
    /// kill -9 of a run process.
    KillRun,
    /// kill -9 of a supervisor and its processes; it restarts after a while.
    KillWorker {
        /// Time until the restart.
        down_ms: u64,
    },
    /// kill -9 of a coordinator; it restarts after a while.
    KillCoordinator {
        /// Time until the restart.
        down_ms: u64,
    },
    /// Suspends a supervisor and its run processes for longer than a lease, then resumes them as
    /// zombies.
    SuspendWorker {
        ms: u64,
        /// Whether its run processes resume a moment before their supervisor, which would kill them.
        runs_first: bool,
    },
    /// Suspends only a supervisor for longer than a lease: its run processes keep writing while no lease is
    /// renewed.
    SuspendSupervisor { ms: u64 },
    /// Suspends a coordinator for longer than its term, then resumes it.
    SuspendCoordinator { ms: u64 },
    /// Cuts the network between a worker and the coordinators.
    CutLink { ms: u64 },
    /// Fills the disk under the log.
    FillDisk { ms: u64 },
    /// PostgreSQL ends every session of the coordinators (`pg_terminate_backend`).
    TerminateSessions,
    /// A PostgreSQL session is killed by a signal: the server ends all others and recovers.
    CrashSession,
    /// Restarts PostgreSQL in order: sessions end, a checkpoint is written.
    RestartFast,
    /// Stops PostgreSQL immediately; it recovers from its log.
    RestartImmediate,
}

impl ChaosFault {
    /// Returns its name, for counting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillRun => "kill -9 of a run process",
            Self::KillWorker { .. } => "kill -9 of a worker",
            Self::KillCoordinator { .. } => "kill -9 of a coordinator",
            Self::SuspendWorker { .. } => "a worker asleep beyond its leases",
            Self::SuspendSupervisor { .. } => "a supervisor asleep beyond its leases",
            Self::SuspendCoordinator { .. } => "a coordinator asleep",
            Self::CutLink { .. } => "network cut",
            Self::FillDisk { .. } => "full disk",
            Self::TerminateSessions => "PostgreSQL sessions ended",
            Self::CrashSession => "PostgreSQL session killed",
            Self::RestartFast => "PostgreSQL restarted (fast)",
            Self::RestartImmediate => "PostgreSQL restarted (immediate)",
        }
    }
}

/// A fault and the moment of its injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedFault {
    /// Number of finished tasks at which the fault is injected.
    pub tasks_done: usize,
    pub fault: ChaosFault,
    /// Selects the victim among the nodes available at that moment.
    pub victim: u64,
}

/// The faults that this system supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCapabilities {
    /// It runs on its own PostgreSQL server.
    pub postgres: bool,
    /// Its workers have separate networks, and its log has its own disk.
    pub namespaces: bool,
}

/// A plan of faults; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlan {
    /// Ordered by their moments.
    pub faults: Vec<PlannedFault>,
}

/// Number of tasks that the fault counts below are meant for.
const REFERENCE_TASKS: usize = 500;

impl FaultPlan {
    /// Draws a plan for `tasks` tasks and leases of `lease_ms`. Every possible fault occurs at least
    /// once.
    pub fn generate(seed: u64, tasks: usize, lease_ms: u64, possible: FaultCapabilities) -> Self {
        type DrawFault = fn(&mut SeededRandom, u64) -> ChaosFault;
        let everywhere: [(usize, DrawFault); 6] = [
            (60, |_, _| ChaosFault::KillRun),
            (8, |draws, lease| ChaosFault::KillWorker { down_ms: draws.next_ms(0, lease) }),
            (8, |draws, lease| ChaosFault::KillCoordinator { down_ms: draws.next_ms(0, lease) }),
            (8, |draws, lease| ChaosFault::SuspendWorker {
                ms: draws.next_ms(lease + lease / 4, 3 * lease),
                runs_first: draws.next_u64().is_multiple_of(2),
            }),
            (6, |draws, lease| ChaosFault::SuspendSupervisor {
                ms: draws.next_ms(lease + lease / 4, 3 * lease),
            }),
            (5, |draws, lease| ChaosFault::SuspendCoordinator { ms: draws.next_ms(lease / 4, 2 * lease) }),
        ];
        let namespaces: [(usize, DrawFault); 2] = [
            (10, |draws, lease| ChaosFault::CutLink { ms: draws.next_ms(lease / 4, 3 * lease) }),
            (3, |draws, lease| ChaosFault::FillDisk { ms: draws.next_ms(lease / 4, lease) }),
        ];
        let postgres: [(usize, DrawFault); 4] = [
            (12, |_, _| ChaosFault::TerminateSessions),
            (3, |_, _| ChaosFault::CrashSession),
            (3, |_, _| ChaosFault::RestartFast),
            (3, |_, _| ChaosFault::RestartImmediate),
        ];
        let kinds = everywhere
            .iter()
            .chain(namespaces.iter().filter(|_| possible.namespaces))
            .chain(postgres.iter().filter(|_| possible.postgres));
        let mut draws = SeededRandom::new(seed);
        let (first, last) = (tasks / 50, tasks * 9 / 10);
        let mut strikes = Vec::new();
        for (count, draw) in kinds {
            for _ in 0..(count * tasks / REFERENCE_TASKS).max(1) {
                let at_done = first + draws.next_below(last - first + 1);
                let fault = draw(&mut draws, lease_ms);
                strikes.push(PlannedFault { tasks_done: at_done, fault, victim: draws.next_u64() });
            }
        }
        strikes.sort_by_key(|strike| strike.tasks_done);
        Self { faults: strikes }
    }

    /// Returns how often each fault occurs.
    pub fn fault_counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for strike in &self.faults {
            *counts.entry(strike.fault.name()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_CAPABILITIES: FaultCapabilities = FaultCapabilities { postgres: true, namespaces: true };

    #[test]
    fn same_seed_gives_the_same_plan() {
        let plan = FaultPlan::generate(7, 500, 1000, ALL_CAPABILITIES);
        assert_eq!(plan, FaultPlan::generate(7, 500, 1000, ALL_CAPABILITIES));
        assert_ne!(plan, FaultPlan::generate(8, 500, 1000, ALL_CAPABILITIES));
        assert!(plan.faults.is_sorted_by_key(|strike| strike.tasks_done));
        assert!(plan.faults.iter().all(|strike| (10..=450).contains(&strike.tasks_done)), "{plan:?}");
        assert_eq!(plan.faults.len(), 129);
    }

    #[test]
    fn every_possible_fault_is_planned() {
        assert_eq!(FaultPlan::generate(1, 20, 1000, ALL_CAPABILITIES).fault_counts().len(), 12);
        let alone = FaultCapabilities { postgres: false, namespaces: false };
        assert_eq!(FaultPlan::generate(1, 20, 1000, alone).fault_counts().len(), 6);
    }

    #[test]
    fn suspension_outlasts_the_lease() {
        for strike in FaultPlan::generate(3, 500, 1000, ALL_CAPABILITIES).faults {
            if let ChaosFault::SuspendWorker { ms, .. } | ChaosFault::SuspendSupervisor { ms } = strike.fault
            {
                assert!((1250..=3000).contains(&ms), "{ms}");
            }
        }
    }
}
