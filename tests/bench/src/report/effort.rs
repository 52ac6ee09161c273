//! How much is measured: the counts and times of every group, for each effort. The only place that says any of them.

use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffortLevel {
    /// Enough for medians to repeat.
    Full,
    /// Enough for figures of the right size.
    Quick,
    /// The least that gives every figure a value: for tests of the bench itself.
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

    /// Rounds in which what is compared takes turns.
    pub(crate) const fn rounds(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// Length of one turn of a round.
    pub(crate) const fn round_slice(self) -> Duration {
        let ms = Duration::from_millis;
        self.choose(ms(150), ms(100), ms(50))
    }

    /// The same where runs append as live ones do: more than one append of each.
    pub(crate) const fn live_slice(self) -> Duration {
        let ms = Duration::from_millis;
        self.choose(ms(4000), ms(1000), ms(750))
    }

    /// Folds of one log, the fastest of which counts.
    pub(crate) const fn folds(self) -> usize {
        self.choose(20, 5, 1)
    }

    /// Submits whose start is timed.
    pub(crate) const fn latency_samples(self) -> usize {
        self.choose(200, 50, 5)
    }

    /// Bulk submits of the drain.
    pub(crate) const fn bulk_submits(self) -> usize {
        self.choose(8, 3, 1)
    }

    /// Runs of 30 turns.
    pub(crate) const fn timed_runs(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// Runs one by one on an idle queue.
    pub(crate) const fn lone_runs(self) -> usize {
        self.choose(30, 8, 2)
    }

    /// Tasks of the drain with run processes.
    pub(crate) const fn isolated_tasks(self) -> usize {
        self.choose(60, 12, 4)
    }

    /// Run processes that are killed.
    pub(crate) const fn killed_runs(self) -> usize {
        self.choose(5, 2, 1)
    }

    /// The lease of a worker that is killed: as usual, or so short that it shows that it works.
    pub(crate) const fn lease_time(self) -> Duration {
        let seconds = Duration::from_secs;
        self.choose(seconds(30), seconds(3), seconds(3))
    }

    /// Tasks that one worker finishes over HTTP.
    pub(crate) const fn drained_tasks(self) -> usize {
        self.choose(20_000, 1000, 250)
    }

    /// Files of the repository that is captured.
    pub(crate) const fn tree_files(self) -> usize {
        self.choose(50_000, 5000, 500)
    }

    /// Snapshots of each kind.
    pub(crate) const fn snapshots_per_kind(self) -> usize {
        self.choose(15, 9, 3)
    }

    /// Turns of the run whose storage is weighed: with those after them at most as many as a task may have.
    pub(crate) const fn stored_turns(self) -> u32 {
        self.choose(990, 200, 40)
    }

    /// Usual edits.
    pub(crate) const fn edits(self) -> usize {
        self.choose(2000, 200, 20)
    }

    /// Edits of a large file.
    pub(crate) const fn large_edits(self) -> usize {
        self.choose(15, 3, 1)
    }

    /// Finished runs in a store.
    pub(crate) const fn finished_runs(self) -> u32 {
        self.choose(1000, 100, 20)
    }

    /// Files of the tree that is searched.
    pub(crate) const fn searched_files(self) -> usize {
        self.choose(5000, 1000, 1000)
    }

    /// Searches of it.
    pub(crate) const fn searches(self) -> usize {
        self.choose(15, 5, 5)
    }

    /// Processes started bare and sandboxed.
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
