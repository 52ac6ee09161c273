//! What becomes of faults: of those of the worker, and of those that a task would have it believe.

use docket_schema::{ids::Epoch, task::WORKER_FAULTS_MAX};
use uuid::Uuid;

use super::{super::state, *};

fn fault(kind: FaultKind, scope: FaultScope) -> WorkerFault {
    WorkerFault::new(kind, scope, "it does not work")
}

fn task(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

fn key(number: u128) -> Key {
    Key { task: task(number), epoch: Epoch(1) }
}

fn flow() -> Flow {
    "default\t\t\t\t\treact".parse().unwrap()
}

/// A quarantine and its clock.
struct Story {
    quarantine: Quarantine,
    now: Instant,
}

impl Story {
    fn empty() -> Self {
        Self { quarantine: Quarantine::default(), now: Instant::now() }
    }

    /// One fault of every task, which task 1 reported.
    fn begin() -> Self {
        let mut story = Self::empty();
        story.report(1, FaultScope::AnyTask);
        story
    }

    fn report(&mut self, by: u128, scope: FaultScope) {
        self.report_of(FaultKind::Sandbox, (by, 0), scope);
    }

    fn report_of(&mut self, kind: FaultKind, (by, base): (u128, u8), scope: FaultScope) {
        let at = Moment { now: self.now, jitter: u64::MAX - 1 };
        let by = Reporter { task: task(by), base: TreeHash::of(&[base]) };
        self.quarantine.report(fault(kind, scope), by, at);
    }

    /// Passes the pause; gives its length.
    fn pass_pause(&mut self) -> Duration {
        let wake = self.quarantine.next_wake().unwrap();
        let pause = wake - self.now;
        self.after(pause);
        assert!(self.quarantine.entries.iter().any(Entry::is_probed));
        pause
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
        self.quarantine.pass(self.now);
    }

    fn begin_run(&mut self, number: u128) -> Run {
        self.now += Duration::from_millis(1);
        self.quarantine.begin_trial(key(number), &flow(), self.now);
        Run {
            lease_time: Duration::ZERO,
            heartbeat: Duration::ZERO,
            vouched_until: self.now,
            stage: state::Stage::Running,
            flow: flow(),
            base: TreeHash::of(&[0]),
            begun: self.now,
        }
    }

    fn end_run(&mut self, number: u128, run: &Run, reach: Reach) {
        self.quarantine.end_trial(key(number), run, reach, self.now);
    }

    /// A run from its start to its end.
    fn succeed(&mut self, number: u128) {
        let run = self.begin_run(number);
        self.end_run(number, &run, Reach::End);
    }

    fn scopes(&self) -> Vec<FaultScope> {
        self.quarantine.entries.iter().map(|entry| entry.fault.scope.clone()).collect()
    }

    fn keeps(&self, number: u128) -> bool {
        self.quarantine.fault_for(&flow(), task(number)).is_some()
    }
}

#[test]
fn pauses_grow_to_a_bound_while_tasks_meet_the_fault_again() {
    let mut story = Story::begin();
    let mut pauses = Vec::new();
    for nth in 2..12 {
        assert!(story.keeps(nth) && story.keeps(99), "{nth}");
        pauses.push(story.pass_pause());
        assert!(!story.keeps(nth), "one task may come");
        story.begin_run(nth);
        assert!(story.keeps(99), "and no other");
        story.report(nth, FaultScope::AnyTask);
    }
    assert_eq!(story.scopes(), [FaultScope::AnyTask]);
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0] / 2), "{pauses:?}");
    assert!(pauses[0] <= PAUSE_MIN && pauses[9] <= PAUSE_MAX && pauses[9] >= PAUSE_MAX / 2, "{pauses:?}");
}

#[test]
fn a_person_is_asked_within_minutes_where_a_model_is_refused() {
    for (kind, minutes) in [(FaultKind::Model, 3..=5), (FaultKind::Sandbox, 15..=30)] {
        let mut story = Story::empty();
        let begun = story.now;
        story.report_of(kind, (1, 0), FaultScope::AnyTask);
        for _ in 1..WORKER_FAULTS_MAX {
            while story.keeps(1) {
                let pause = story.quarantine.next_wake().expect("a pause ends") - story.now;
                story.after(pause);
            }
            story.begin_run(1);
            story.report_of(kind, (1, 0), FaultScope::AnyTask);
        }
        let took = (story.now - begun).as_secs() / 60;
        assert!(minutes.contains(&took), "{kind:?}: {took} minutes");
    }
}

#[test]
fn only_a_run_that_got_past_the_fault_ends_it() {
    for (kind, reach, is_over) in [
        (FaultKind::Sandbox, Reach::Start, false),
        (FaultKind::Sandbox, Reach::Work, true),
        (FaultKind::Key, Reach::Work, false),
        (FaultKind::Key, Reach::End, true),
    ] {
        let mut story = Story::empty();
        story.report_of(kind, (1, 0), FaultScope::AnyTask);
        let first = story.pass_pause();
        let run = story.begin_run(2);
        story.end_run(3, &run, Reach::End);
        assert_eq!(story.quarantine.faults().len(), 1, "another run says nothing of it");
        story.end_run(2, &run, reach);
        assert_eq!(story.quarantine.faults().is_empty(), is_over, "{kind:?} {reach:?}");
        assert_eq!(story.quarantine.is_probing(), !is_over);
        if !is_over {
            story.begin_run(4);
            story.report_of(kind, (4, 0), FaultScope::AnyTask);
            assert!(story.pass_pause() > first, "the pause does not begin again");
        }
    }
}

#[test]
fn a_run_that_works_on_lets_others_in_and_may_still_meet_the_fault() {
    let mut story = Story::begin();
    let first = story.pass_pause();
    story.begin_run(2);
    story.after(TRIAL);
    assert!(
        story.quarantine.faults().is_empty() && !story.keeps(3) && story.quarantine.next_wake().is_none()
    );
    story.report(2, FaultScope::AnyTask);
    assert!(story.keeps(3) && story.pass_pause() > first);
}

#[test]
fn reports_of_runs_that_began_together_count_once() {
    let mut story = Story::begin();
    let wake = story.quarantine.next_wake();
    story.report(1, FaultScope::AnyTask);
    story.report(2, FaultScope::AnyTask);
    assert_eq!(story.quarantine.next_wake(), wake);
    assert_eq!(story.scopes(), [FaultScope::AnyTask]);
}

#[test]
fn another_task_than_the_reporter_is_wanted_first() {
    let mut story = Story::begin();
    story.pass_pause();
    assert!(story.keeps(1) && !story.keeps(2));
    let said: Vec<_> =
        story.quarantine.faults().into_iter().map(|fault| (fault.scope, fault.is_probed)).collect();
    assert_eq!(said, [(FaultScope::AnyTask, true), (FaultScope::Task(task(1)), false)]);
    story.after(OTHERS_FIRST);
    assert!(!story.keeps(1), "where there is no other");
    assert_eq!(story.quarantine.faults().len(), 1);
}

#[test]
fn what_one_task_alone_meets_again_concerns_that_task_alone() {
    for scope in [FaultScope::AnyTask, FaultScope::Setup(flow().setup)] {
        let mut story = Story::empty();
        story.report(1, scope.clone());
        story.after(PAUSE_MIN + OTHERS_FIRST);
        story.after(OTHERS_FIRST);
        story.report(1, scope.clone());
        assert_eq!(story.scopes(), [FaultScope::Task(task(1))], "{scope:?}");
        assert!(story.keeps(1) && !story.keeps(2));
        // Another one that meets it confirms it, with the pauses that it has by now.
        story.report(2, scope.clone());
        assert_eq!(story.scopes(), [scope]);
        assert_eq!(story.quarantine.entries[0].repeats, 1);
        assert_eq!(story.quarantine.entries[0].reporters, [task(1), task(2)]);
    }
}

#[test]
fn a_task_is_not_believed_again_once_another_got_past_its_fault() {
    let mut story = Story::begin();
    story.pass_pause();
    story.succeed(2);
    assert!(story.scopes().is_empty());
    for _ in 0..5 {
        story.report(1, FaultScope::AnyTask);
        assert_eq!(story.scopes(), [FaultScope::Task(task(1))]);
        story.after(PAUSE_MAX);
        story.begin_run(1);
    }
    // A task that does not know of that is believed, but does not confirm the other.
    story.report(3, FaultScope::AnyTask);
    assert_eq!(story.scopes(), [FaultScope::Task(task(1)), FaultScope::AnyTask]);
    assert_eq!(story.quarantine.entries[1].reporters, [task(3)]);
    let mut later = Story::begin();
    later.pass_pause();
    later.succeed(2);
    later.after(RECENT);
    later.report(1, FaultScope::AnyTask);
    assert_eq!(later.scopes(), [FaultScope::AnyTask], "much may have happened since");
}

#[test]
fn many_tasks_that_meet_the_same_fault_make_it_one_of_all_tasks() {
    let reports = |kind: FaultKind, count: u8, is_of_one_base: bool| {
        let mut story = Story::empty();
        for nth in 1..=count {
            let base = if is_of_one_base { 0 } else { nth };
            story.report_of(kind, (nth.into(), base), FaultScope::Task(task(nth.into())));
        }
        story.scopes()
    };
    assert_eq!(reports(FaultKind::McpServer, 4, false).len(), 4);
    assert_eq!(reports(FaultKind::McpServer, 5, false), [FaultScope::AnyTask]);
    // The files that all of them begin with may be the cause.
    assert_eq!(reports(FaultKind::McpServer, 15, true).len(), 15);
    assert_eq!(reports(FaultKind::McpServer, 16, true), [FaultScope::AnyTask]);
    // Tasks of an engine that this build lacks say nothing of the others.
    assert_eq!(reports(FaultKind::Engine, 20, false).len(), 20);
}

#[test]
fn only_recent_reports_without_a_success_in_between_make_a_fault_one_of_all_tasks() {
    for (pause, succeeds) in [(RECENT, false), (Duration::from_secs(1), true)] {
        let mut story = Story::empty();
        for nth in 1..=8 {
            story.report_of(
                FaultKind::McpServer,
                (nth, u8::try_from(nth).unwrap()),
                FaultScope::Task(task(nth)),
            );
            if nth == 4 {
                story.now += pause;
                if succeeds {
                    story.succeed(99);
                }
                story.now += Duration::from_secs(1);
            }
        }
        assert!(!story.scopes().contains(&FaultScope::AnyTask), "{pause:?}");
        story.report_of(FaultKind::McpServer, (9, 9), FaultScope::Task(task(9)));
        assert_eq!(story.scopes(), [FaultScope::AnyTask], "five since then");
    }
}

#[test]
fn a_fault_of_few_tasks_is_forgotten_and_does_not_limit_what_is_asked_for() {
    for (scope, is_wide) in [
        (FaultScope::Task(task(1)), false),
        (FaultScope::Setup("abc".to_owned()), false),
        (FaultScope::Provider { provider: "openai".to_owned(), base_url: None }, true),
        (FaultScope::AnyTask, true),
    ] {
        let mut story = Story::empty();
        story.report(1, scope.clone());
        story.pass_pause();
        assert_eq!(story.quarantine.is_probing(), is_wide, "{scope:?}");
        story.after(OTHERS_FIRST);
        story.after(FORGET);
        assert_eq!(story.scopes().len(), usize::from(is_wide), "{scope:?}");
        assert_eq!(story.quarantine.next_wake(), None);
    }
}

#[test]
fn faults_are_bounded_and_the_narrowest_go_first() {
    let mut story = Story::begin();
    for nth in 0..2 * FAULTS_MAX {
        let before = story.quarantine.version();
        story.report_of(FaultKind::Engine, (nth as u128, 0), FaultScope::Task(task(nth as u128)));
        assert!(story.quarantine.version() > before);
    }
    assert_eq!(story.quarantine.faults().len(), FAULTS_MAX);
    assert!(story.scopes().contains(&FaultScope::AnyTask));
    assert!(story.scopes().contains(&FaultScope::Task(task(2 * FAULTS_MAX as u128 - 1))), "the latest");
    let before = story.quarantine.version();
    story.quarantine.pass(story.now);
    assert_eq!(story.quarantine.version(), before, "nothing passed");
    story.after(PAUSE_MIN);
    assert!(story.quarantine.version() > before && story.quarantine.is_probing());
    assert_eq!(story.quarantine.faults().len(), FAULTS_MAX, "with the tasks that are kept away");
}
