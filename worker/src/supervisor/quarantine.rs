//! What this worker cannot do at the moment: faults that its run processes reported. Plain rules without a clock.
//!
//! A fault keeps the tasks that it concerns away for a pause. After it the worker asks for one such task: if that meets
//! the fault again the pause is doubled, otherwise the fault is over. So a worker recovers by itself once the cause is
//! fixed, and one that stays faulty leases a task every two minutes at most.

use std::time::{Duration, Instant};

use docket_schema::{
    ids::TaskId,
    task::Flow,
    wire::{FAULTS_MAX, FaultScope, WorkerFault},
};

use super::{decide::Moment, state::Key};

/// First pause after a fault: most are found by a person who then looks at the result of a fix.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause. Each attempt leaves two events in a task's stream.
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// How long a run that tries a fault may take to meet it again: longer than most starts of servers and first answers
/// of models. A run that works on after it is taken as a sign that the fault is gone.
const TRIAL: Duration = Duration::from_secs(30);
/// So many tasks that alone meet the same kind of fault are taken as a sign that every task does.
const TASKS_BEFORE_ALL: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    entries: Vec<Entry>,
    /// Rises whenever [`Quarantine::faults`] changes.
    version: u64,
}

#[derive(Debug)]
struct Entry {
    fault: WorkerFault,
    /// How often it was met again after a pause.
    repeats: u32,
    stage: Stage,
}

/// Where a fault is between its report and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Tasks are kept away until this instant.
    Paused(Instant),
    /// One task is wanted.
    Probing,
    /// This run shows whether the fault is still there; at this instant it has.
    OnTrial(Key, Instant),
}

impl Quarantine {
    /// Takes in what a run process reported.
    pub(super) fn report(&mut self, fault: WorkerFault, at: Moment) {
        self.version += 1;
        let fault = self.widen(fault);
        let is_same = |entry: &Entry| entry.fault.kind == fault.kind && entry.fault.scope == fault.scope;
        let before = self.entries.iter().position(is_same).map(|nth| self.entries.remove(nth));
        let (repeats, stage) = match before {
            // Several runs may have met it before the first report.
            Some(Entry { repeats, stage: stage @ Stage::Paused(_), .. }) => (repeats, stage),
            Some(Entry { repeats, stage: Stage::Probing | Stage::OnTrial(..), .. }) => {
                let repeats = repeats.saturating_add(1);
                (repeats, Stage::Paused(at.about(pause(repeats))))
            }
            None => (0, Stage::Paused(at.about(pause(0)))),
        };
        self.entries.push(Entry { fault, repeats, stage });
        if self.entries.len() > FAULTS_MAX {
            self.entries.remove(0);
        }
    }

    /// The fault, for every task where it was met by many that have nothing else in common.
    fn widen(&mut self, fault: WorkerFault) -> WorkerFault {
        let is_alike = |entry: &Entry| {
            entry.fault.kind == fault.kind && matches!(entry.fault.scope, FaultScope::Task(_))
        };
        if !matches!(fault.scope, FaultScope::Task(_))
            || self.entries.iter().filter(|one| is_alike(one)).count() < TASKS_BEFORE_ALL
        {
            return fault;
        }
        self.entries.retain(|entry| !is_alike(entry));
        WorkerFault { scope: FaultScope::AnyTask, ..fault }
    }

    /// The fault that keeps this task away now.
    pub(super) fn fault_for(&self, flow: &Flow, task: TaskId) -> Option<&WorkerFault> {
        let keeps =
            |entry: &&Entry| entry.stage != Stage::Probing && entry.fault.scope.covers_task(flow, task);
        self.entries.iter().find(keeps).map(|entry| &entry.fault)
    }

    /// A run begins: it shows what becomes of the faults that concern it.
    pub(super) fn begin_trial(&mut self, key: Key, flow: &Flow, now: Instant) {
        for entry in &mut self.entries {
            if entry.stage == Stage::Probing && entry.fault.scope.covers_task(flow, key.task) {
                entry.stage = Stage::OnTrial(key, now + TRIAL);
                self.version += 1;
            }
        }
    }

    /// A run ended without a fault; `is_proof` = it came so far that it would have met one.
    pub(super) fn end_trial(&mut self, key: Key, is_proof: bool) {
        let is_tried = |entry: &Entry| matches!(entry.stage, Stage::OnTrial(by, _) if by == key);
        if !self.entries.iter().any(is_tried) {
            return;
        }
        self.version += 1;
        if is_proof {
            self.entries.retain(|entry| !is_tried(entry));
        } else {
            self.entries
                .iter_mut()
                .filter(|entry| is_tried(entry))
                .for_each(|entry| entry.stage = Stage::Probing);
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, now: Instant) {
        let before = self.entries.len();
        self.entries.retain(|entry| !matches!(entry.stage, Stage::OnTrial(_, until) if until <= now));
        self.version += u64::from(self.entries.len() != before);
        for entry in &mut self.entries {
            if matches!(entry.stage, Stage::Paused(until) if until <= now) {
                entry.stage = Stage::Probing;
                self.version += 1;
            }
        }
    }

    /// The next instant at which time alone changes something.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let wake = |entry: &Entry| match entry.stage {
            Stage::Paused(until) | Stage::OnTrial(_, until) => Some(until),
            Stage::Probing => None,
        };
        self.entries.iter().filter_map(wake).min()
    }

    /// Whether one task is wanted that shows whether a fault is still there.
    pub(super) fn is_probing(&self) -> bool {
        self.entries.iter().any(|entry| entry.stage == Stage::Probing)
    }

    /// What is said of them with a request for work.
    pub(super) fn faults(&self) -> Vec<WorkerFault> {
        let said =
            |entry: &Entry| WorkerFault { is_probed: entry.stage == Stage::Probing, ..entry.fault.clone() };
        self.entries.iter().map(said).collect()
    }

    /// Rises whenever [`Quarantine::faults`] changes.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }
}

/// The pause after a fault that was met again so often.
fn pause(repeats: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << repeats.min(10)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use docket_schema::{ids::Epoch, wire::FaultKind};
    use uuid::Uuid;

    use super::*;

    fn fault(kind: FaultKind, scope: FaultScope) -> WorkerFault {
        WorkerFault::new(kind, scope, "it does not work")
    }

    fn key(task: u128) -> Key {
        Key { task: TaskId(Uuid::from_u128(task)), epoch: Epoch(1) }
    }

    fn flow() -> Flow {
        "default\t\t\t\t\treact".parse().unwrap()
    }

    /// One fault of a kind, from its report on.
    struct Story {
        quarantine: Quarantine,
        now: Instant,
    }

    impl Story {
        fn begin() -> Self {
            let mut story = Self { quarantine: Quarantine::default(), now: Instant::now() };
            story.report(FaultScope::AnyTask);
            story
        }

        fn report(&mut self, scope: FaultScope) {
            let at = Moment { now: self.now, jitter: u64::MAX - 1 };
            self.quarantine.report(fault(FaultKind::Sandbox, scope), at);
        }

        /// Passes the pause; gives its length.
        fn pass_pause(&mut self) -> Duration {
            let wake = self.quarantine.next_wake().unwrap();
            let pause = wake - self.now;
            self.now = wake;
            self.quarantine.pass(self.now);
            assert!(self.quarantine.is_probing());
            pause
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_while_the_fault_is_met_again() {
        let mut story = Story::begin();
        let mut pauses = Vec::new();
        for nth in 0..10 {
            assert!(story.quarantine.fault_for(&flow(), key(1).task).is_some(), "{nth}");
            pauses.push(story.pass_pause());
            assert!(story.quarantine.fault_for(&flow(), key(1).task).is_none(), "one task may come");
            story.quarantine.begin_trial(key(nth), &flow(), story.now);
            assert!(story.quarantine.fault_for(&flow(), key(1).task).is_some(), "and no other");
            story.report(FaultScope::AnyTask);
        }
        assert!(pauses.windows(2).all(|pair| pair[1] > pair[0] / 2), "{pauses:?}");
        assert!(pauses[0] <= PAUSE_MIN && pauses[9] <= PAUSE_MAX && pauses[9] >= PAUSE_MAX / 2, "{pauses:?}");
    }

    #[test]
    fn a_run_that_gets_further_ends_the_fault() {
        for is_proof in [true, false] {
            let mut story = Story::begin();
            story.pass_pause();
            story.quarantine.begin_trial(key(1), &flow(), story.now);
            story.quarantine.end_trial(key(2), true);
            assert_eq!(story.quarantine.faults().len(), 1, "another run says nothing of it");
            story.quarantine.end_trial(key(1), is_proof);
            assert_eq!(story.quarantine.faults().is_empty(), is_proof);
            assert_eq!(story.quarantine.is_probing(), !is_proof);
        }
        let mut story = Story::begin();
        story.pass_pause();
        story.quarantine.begin_trial(key(1), &flow(), story.now);
        story.quarantine.pass(story.now + TRIAL);
        assert!(story.quarantine.faults().is_empty(), "it works on");
    }

    #[test]
    fn reports_of_runs_that_began_together_count_once() {
        let mut story = Story::begin();
        let wake = story.quarantine.next_wake();
        story.report(FaultScope::AnyTask);
        assert_eq!(story.quarantine.next_wake(), wake);
        assert_eq!(story.quarantine.faults().len(), 1);
    }

    #[test]
    fn many_tasks_that_meet_the_same_fault_make_it_one_of_all_tasks() {
        let mut quarantine = Quarantine::default();
        let at = Moment { now: Instant::now(), jitter: 0 };
        for task in 1..=5 {
            quarantine.report(fault(FaultKind::McpServer, FaultScope::Task(key(task).task)), at);
        }
        let faults = quarantine.faults();
        assert!(faults.len() == 1 && faults[0].scope == FaultScope::AnyTask, "{faults:?}");
        // Of another kind each is its own.
        quarantine.report(fault(FaultKind::Engine, FaultScope::Task(key(9).task)), at);
        assert_eq!(quarantine.faults().len(), 2);
    }

    #[test]
    fn faults_are_bounded_and_each_change_is_seen() {
        let mut quarantine = Quarantine::default();
        let at = Moment { now: Instant::now(), jitter: 0 };
        for nth in 0..2 * FAULTS_MAX {
            let before = quarantine.version();
            quarantine.report(fault(FaultKind::Toolchain, FaultScope::Setup(nth.to_string())), at);
            assert!(quarantine.version() > before);
        }
        assert_eq!(quarantine.faults().len(), FAULTS_MAX);
        let before = quarantine.version();
        quarantine.pass(at.now);
        assert_eq!(quarantine.version(), before, "nothing passed");
        quarantine.pass(at.now + PAUSE_MIN);
        assert!(quarantine.version() > before && quarantine.is_probing());
    }
}
