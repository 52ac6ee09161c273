//! How much is measured: the counts and times of every group, for each effort level. Their only definition.

use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffortLevel {
    /// Enough for reproducible medians.
    Full,
    /// Enough for the right order of magnitude.
    Quick,
    /// The minimum that gives every figure a value, for tests of the bench itself.
    Smoke,
}

impl EffortLevel {
    const fn choose<T: Copy>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    /// Number of rounds in which the compared measurements alternate.
    pub(crate) const fn rounds(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// Length of one slice of a round.
    pub(crate) const fn round_slice(self) -> Duration {
        let ms = Duration::from_millis;
        self.choose(ms(150), ms(100), ms(50))
    }

    /// The same for runs that append like live ones: more than one append each.
    pub(crate) const fn live_slice(self) -> Duration {
        let ms = Duration::from_millis;
        self.choose(ms(4000), ms(1000), ms(750))
    }

    /// Number of folds of one log, of which the fastest counts.
    pub(crate) const fn folds(self) -> usize {
        self.choose(20, 5, 1)
    }

    /// Number of submits whose start is timed.
    pub(crate) const fn latency_samples(self) -> usize {
        self.choose(200, 50, 5)
    }

    /// Number of bulk submits of the drain.
    pub(crate) const fn bulk_submits(self) -> usize {
        self.choose(8, 3, 1)
    }

    /// Number of runs of 30 turns.
    pub(crate) const fn timed_runs(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// Number of single runs on an idle queue.
    pub(crate) const fn lone_runs(self) -> usize {
        self.choose(30, 8, 2)
    }

    /// Number of tasks of the drain with run processes.
    pub(crate) const fn isolated_tasks(self) -> usize {
        self.choose(60, 12, 4)
    }

    /// Number of run processes that are killed.
    pub(crate) const fn killed_runs(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// The lease time of a killed worker: the default, or short enough to show that it works.
    pub(crate) const fn lease_time(self) -> Duration {
        let seconds = Duration::from_secs;
        self.choose(seconds(30), seconds(3), seconds(3))
    }

    /// Number of tasks that one worker finishes over HTTP.
    pub(crate) const fn drained_tasks(self) -> usize {
        self.choose(20_000, 1000, 250)
    }

    /// Number of files in the captured repository.
    pub(crate) const fn tree_files(self) -> usize {
        self.choose(50_000, 5000, 500)
    }

    /// Number of snapshots of each kind.
    pub(crate) const fn snapshots_per_kind(self) -> usize {
        self.choose(15, 9, 3)
    }

    /// Turns of the run whose storage is measured: with the later ones, at most as many as a task may have.
    pub(crate) const fn stored_turns(self) -> u32 {
        self.choose(990, 200, 40)
    }

    /// Number of typical edits.
    pub(crate) const fn edits(self) -> usize {
        self.choose(2000, 200, 20)
    }

    /// Number of edits of a large file.
    pub(crate) const fn large_edits(self) -> usize {
        self.choose(15, 3, 1)
    }

    /// Number of finished runs in a store.
    pub(crate) const fn finished_runs(self) -> u32 {
        self.choose(1000, 100, 20)
    }

    /// Number of files in the searched tree.
    pub(crate) const fn searched_files(self) -> usize {
        self.choose(5000, 1000, 1000)
    }

    /// Number of searches.
    pub(crate) const fn searches(self) -> usize {
        self.choose(15, 5, 5)
    }

    /// Number of processes started with and without the sandbox.
    pub(crate) const fn spawns(self) -> usize {
        self.choose(40, 10, 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_effort_lowers_every_count_but_never_to_zero() {
        let all = |effort: EffortLevel| {
            [
                effort.rounds(),
                effort.latency_samples(),
                effort.bulk_submits(),
                effort.timed_runs(),
                effort.lone_runs(),
                effort.isolated_tasks(),
                effort.killed_runs(),
                effort.drained_tasks(),
                effort.lease_time().as_secs() as usize,
                effort.spawns(),
                effort.tree_files(),
                effort.snapshots_per_kind(),
                effort.stored_turns() as usize,
                effort.edits(),
                effort.large_edits(),
                effort.finished_runs() as usize,
                effort.round_slice().as_millis() as usize,
                effort.live_slice().as_millis() as usize,
            ]
        };
        for (full, quick) in all(EffortLevel::Full).into_iter().zip(all(EffortLevel::Quick)) {
            assert!(quick < full);
        }
        for (quick, smoke) in all(EffortLevel::Quick).into_iter().zip(all(EffortLevel::Smoke)) {
            assert!(smoke <= quick && smoke > 0);
        }
    }
}
