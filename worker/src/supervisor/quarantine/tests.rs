//! Tests of how faults are handled: those of the worker, and those that a task only claims.

use docket_schema::{ids::Epoch, task::WORKER_FAULTS_MAX};
use uuid::Uuid;

use super::{super::state, *};

fn sample_fault(kind: FaultKind, scope: FaultScope) -> WorkerFault {
    WorkerFault::new(kind, scope, "it does not work")
}

fn task_id(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

fn lease_key(number: u128) -> LeaseKey {
    LeaseKey { task: task_id(number), epoch: Epoch(1) }
}

fn sample_flow() -> Flow {
    "default\t\t\t\t\treact".parse().unwrap()
}

/// A quarantine and its clock.
struct QuarantineScenario {
    quarantine: FaultQuarantine,
    now: Instant,
}

impl QuarantineScenario {
    fn without_faults() -> Self {
        Self { quarantine: FaultQuarantine::default(), now: Instant::now() }
    }

    /// One fault of every task, which task 1 reported.
    fn with_fault() -> Self {
        let mut story = Self::without_faults();
        story.report_fault(1, FaultScope::AnyTask);
        story
    }

    fn report_fault(&mut self, by: u128, scope: FaultScope) {
        self.report_fault_of_kind(FaultKind::Sandbox, (by, 0), scope);
    }

    fn report_fault_of_kind(&mut self, kind: FaultKind, (by, base): (u128, u8), scope: FaultScope) {
        let at = NowWithJitter { now: self.now, jitter: u64::MAX - 1 };
        let by = FaultReporter { task: task_id(by), base: TreeHash::hash_bytes(&[base]) };
        self.quarantine.report_fault(sample_fault(kind, scope), by, at);
    }

    /// Passes the pause and returns its length.
    fn wait_for_pause(&mut self) -> Duration {
        let wake = self.quarantine.next_wake().unwrap();
        let pause = wake - self.now;
        self.advance_time(pause);
        assert!(self.quarantine.entries.iter().any(QuarantinedFault::is_probed));
        pause
    }

    fn advance_time(&mut self, time: Duration) {
        self.now += time;
        self.quarantine.advance_time(self.now);
    }

    fn begin_run(&mut self, number: u128) -> LeasedRun {
        self.now += Duration::from_millis(1);
        self.quarantine.begin_trial(lease_key(number), &sample_flow(), self.now);
        LeasedRun {
            lease_time: Duration::ZERO,
            heartbeat_interval: Duration::ZERO,
            lease_valid_until: self.now,
            stage: state::ProcessStage::Running,
            flow: sample_flow(),
            base_tree: TreeHash::hash_bytes(&[0]),
            started_at: self.now,
        }
    }

    fn end_run(&mut self, number: u128, run: &LeasedRun, reach: RunMilestone) {
        self.quarantine.end_trial(lease_key(number), run, reach, self.now);
    }

    /// A run from its start to its end.
    fn finish_run(&mut self, number: u128) {
        let run = self.begin_run(number);
        self.end_run(number, &run, RunMilestone::Ended);
    }

    fn scopes(&self) -> Vec<FaultScope> {
        self.quarantine.entries.iter().map(|entry| entry.fault.scope.clone()).collect()
    }

    fn keeps_away(&self, number: u128) -> bool {
        self.quarantine.fault_for(&sample_flow(), task_id(number)).is_some()
    }
}

#[test]
fn pauses_grow_to_a_limit_while_the_fault_persists() {
    let mut story = QuarantineScenario::with_fault();
    let mut pauses = Vec::new();
    for nth in 2..12 {
        assert!(story.keeps_away(nth) && story.keeps_away(99), "{nth}");
        pauses.push(story.wait_for_pause());
        assert!(!story.keeps_away(nth), "one task may come");
        story.begin_run(nth);
        assert!(story.keeps_away(99), "and no other");
        story.report_fault(nth, FaultScope::AnyTask);
    }
    assert_eq!(story.scopes(), [FaultScope::AnyTask]);
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0] / 2), "{pauses:?}");
    assert!(
        pauses[0] <= FAULT_PAUSE_MIN && pauses[9] <= FAULT_PAUSE_MAX && pauses[9] >= FAULT_PAUSE_MAX / 2,
        "{pauses:?}"
    );
}

#[test]
fn refused_model_asks_a_person_within_minutes() {
    for (kind, minutes) in [(FaultKind::Model, 3..=5), (FaultKind::Sandbox, 15..=30)] {
        let mut story = QuarantineScenario::without_faults();
        let begun = story.now;
        story.report_fault_of_kind(kind, (1, 0), FaultScope::AnyTask);
        for _ in 1..WORKER_FAULTS_MAX {
            while story.keeps_away(1) {
                let pause = story.quarantine.next_wake().expect("a pause ends") - story.now;
                story.advance_time(pause);
            }
            story.begin_run(1);
            story.report_fault_of_kind(kind, (1, 0), FaultScope::AnyTask);
        }
        let took = (story.now - begun).as_secs() / 60;
        assert!(minutes.contains(&took), "{kind:?}: {took} minutes");
    }
}

#[test]
fn only_a_run_that_outlasts_the_fault_clears_it() {
    for (kind, reach, is_over) in [
        (FaultKind::Sandbox, RunMilestone::Starting, false),
        (FaultKind::Sandbox, RunMilestone::Working, true),
        (FaultKind::Key, RunMilestone::Working, false),
        (FaultKind::Key, RunMilestone::Ended, true),
    ] {
        let mut story = QuarantineScenario::without_faults();
        story.report_fault_of_kind(kind, (1, 0), FaultScope::AnyTask);
        let first = story.wait_for_pause();
        let run = story.begin_run(2);
        story.end_run(3, &run, RunMilestone::Ended);
        assert_eq!(story.quarantine.reported_faults().len(), 1, "another run says nothing of it");
        story.end_run(2, &run, reach);
        assert_eq!(story.quarantine.reported_faults().is_empty(), is_over, "{kind:?} {reach:?}");
        assert_eq!(story.quarantine.is_probing(), !is_over);
        if !is_over {
            story.begin_run(4);
            story.report_fault_of_kind(kind, (4, 0), FaultScope::AnyTask);
            assert!(story.wait_for_pause() > first, "the pause does not begin again");
        }
    }
}

#[test]
fn long_trial_admits_other_tasks_and_may_still_meet_the_fault() {
    let mut story = QuarantineScenario::with_fault();
    let first = story.wait_for_pause();
    story.begin_run(2);
    story.advance_time(TRIAL_TIME_MAX);
    assert!(
        story.quarantine.reported_faults().is_empty()
            && !story.keeps_away(3)
            && story.quarantine.next_wake().is_none()
    );
    story.report_fault(2, FaultScope::AnyTask);
    assert!(story.keeps_away(3) && story.wait_for_pause() > first);
}

#[test]
fn reports_of_concurrent_runs_count_once() {
    let mut story = QuarantineScenario::with_fault();
    let wake = story.quarantine.next_wake();
    story.report_fault(1, FaultScope::AnyTask);
    story.report_fault(2, FaultScope::AnyTask);
    assert_eq!(story.quarantine.next_wake(), wake);
    assert_eq!(story.scopes(), [FaultScope::AnyTask]);
}

#[test]
fn tasks_other_than_the_reporter_are_tried_first() {
    let mut story = QuarantineScenario::with_fault();
    story.wait_for_pause();
    assert!(story.keeps_away(1) && !story.keeps_away(2));
    let said: Vec<_> =
        story.quarantine.reported_faults().into_iter().map(|fault| (fault.scope, fault.is_probed)).collect();
    assert_eq!(said, [(FaultScope::AnyTask, true), (FaultScope::Task(task_id(1)), false)]);
    story.advance_time(OTHER_TASKS_FIRST);
    assert!(!story.keeps_away(1), "where there is no other");
    assert_eq!(story.quarantine.reported_faults().len(), 1);
}

#[test]
fn fault_met_again_by_one_task_concerns_it_alone() {
    for scope in [FaultScope::AnyTask, FaultScope::Setup(sample_flow().setup)] {
        let mut story = QuarantineScenario::without_faults();
        story.report_fault(1, scope.clone());
        story.advance_time(FAULT_PAUSE_MIN + OTHER_TASKS_FIRST);
        story.advance_time(OTHER_TASKS_FIRST);
        story.report_fault(1, scope.clone());
        assert_eq!(story.scopes(), [FaultScope::Task(task_id(1))], "{scope:?}");
        assert!(story.keeps_away(1) && !story.keeps_away(2));
        // Another one that meets it confirms it, with its current pause.
        story.report_fault(2, scope.clone());
        assert_eq!(story.scopes(), [scope]);
        assert_eq!(story.quarantine.entries[0].repeats, 1);
        assert_eq!(story.quarantine.entries[0].reporters, [task_id(1), task_id(2)]);
    }
}

#[test]
fn refuted_reporter_is_not_believed_again() {
    let mut story = QuarantineScenario::with_fault();
    story.wait_for_pause();
    story.finish_run(2);
    assert!(story.scopes().is_empty());
    for _ in 0..5 {
        story.report_fault(1, FaultScope::AnyTask);
        assert_eq!(story.scopes(), [FaultScope::Task(task_id(1))]);
        story.advance_time(FAULT_PAUSE_MAX);
        story.begin_run(1);
    }
    // A task that does not know of it is believed, but does not confirm the other.
    story.report_fault(3, FaultScope::AnyTask);
    assert_eq!(story.scopes(), [FaultScope::Task(task_id(1)), FaultScope::AnyTask]);
    assert_eq!(story.quarantine.entries[1].reporters, [task_id(3)]);
    let mut later = QuarantineScenario::with_fault();
    later.wait_for_pause();
    later.finish_run(2);
    later.advance_time(RECENT_WINDOW);
    later.report_fault(1, FaultScope::AnyTask);
    assert_eq!(later.scopes(), [FaultScope::AnyTask], "much may have happened since");
}

#[test]
fn fault_met_by_many_tasks_is_widened_to_all() {
    let reports = |kind: FaultKind, count: u8, is_of_one_base: bool| {
        let mut story = QuarantineScenario::without_faults();
        for nth in 1..=count {
            let base = if is_of_one_base { 0 } else { nth };
            story.report_fault_of_kind(kind, (nth.into(), base), FaultScope::Task(task_id(nth.into())));
        }
        story.scopes()
    };
    assert_eq!(reports(FaultKind::McpServer, 4, false).len(), 4);
    assert_eq!(reports(FaultKind::McpServer, 5, false), [FaultScope::AnyTask]);
    // The shared base files may be the cause.
    assert_eq!(reports(FaultKind::McpServer, 15, true).len(), 15);
    assert_eq!(reports(FaultKind::McpServer, 16, true), [FaultScope::AnyTask]);
    // Tasks of an engine that this build lacks say nothing about the others.
    assert_eq!(reports(FaultKind::Engine, 20, false).len(), 20);
}

#[test]
fn only_recent_reports_without_a_success_widen_a_fault() {
    for (pause, succeeds) in [(RECENT_WINDOW, false), (Duration::from_secs(1), true)] {
        let mut story = QuarantineScenario::without_faults();
        for nth in 1..=8 {
            story.report_fault_of_kind(
                FaultKind::McpServer,
                (nth, u8::try_from(nth).unwrap()),
                FaultScope::Task(task_id(nth)),
            );
            if nth == 4 {
                story.now += pause;
                if succeeds {
                    story.finish_run(99);
                }
                story.now += Duration::from_secs(1);
            }
        }
        assert!(!story.scopes().contains(&FaultScope::AnyTask), "{pause:?}");
        story.report_fault_of_kind(FaultKind::McpServer, (9, 9), FaultScope::Task(task_id(9)));
        assert_eq!(story.scopes(), [FaultScope::AnyTask], "five since then");
    }
}

#[test]
fn narrow_fault_is_forgotten_and_does_not_limit_requests() {
    for (scope, is_wide) in [
        (FaultScope::Task(task_id(1)), false),
        (FaultScope::Setup("abc".to_owned()), false),
        (FaultScope::Provider { provider: "openai".to_owned(), base_url: None }, true),
        (FaultScope::AnyTask, true),
    ] {
        let mut story = QuarantineScenario::without_faults();
        story.report_fault(1, scope.clone());
        story.wait_for_pause();
        assert_eq!(story.quarantine.is_probing(), is_wide, "{scope:?}");
        story.advance_time(OTHER_TASKS_FIRST);
        story.advance_time(FORGET_AFTER);
        assert_eq!(story.scopes().len(), usize::from(is_wide), "{scope:?}");
        assert_eq!(story.quarantine.next_wake(), None);
    }
}

#[test]
fn faults_are_bounded_and_the_narrowest_are_dropped_first() {
    let mut story = QuarantineScenario::with_fault();
    for nth in 0..2 * FAULTS_MAX {
        let before = story.quarantine.version();
        story.report_fault_of_kind(
            FaultKind::Engine,
            (nth as u128, 0),
            FaultScope::Task(task_id(nth as u128)),
        );
        assert!(story.quarantine.version() > before);
    }
    assert_eq!(story.quarantine.reported_faults().len(), FAULTS_MAX);
    assert!(story.scopes().contains(&FaultScope::AnyTask));
    assert!(story.scopes().contains(&FaultScope::Task(task_id(2 * FAULTS_MAX as u128 - 1))), "the latest");
    let before = story.quarantine.version();
    story.quarantine.advance_time(story.now);
    assert_eq!(story.quarantine.version(), before, "nothing passed");
    story.advance_time(FAULT_PAUSE_MIN);
    assert!(story.quarantine.version() > before && story.quarantine.is_probing());
    assert_eq!(story.quarantine.reported_faults().len(), FAULTS_MAX, "with the tasks that are kept away");
}
