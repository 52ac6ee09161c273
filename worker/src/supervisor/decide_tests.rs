//! The rules, enumerated, and against sequences nobody thought of.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use docket_schema::{
    event::Head,
    ids::{Epoch, RunId, TaskId},
    wire::{FaultKind, FaultScope, Lease, LostWhy, ReleaseReason, WorkerFault},
};
use proptest::prelude::*;

use super::{
    ask::LEASE_WAIT,
    decide::{Moment, Outcome, next_wake, on, outcome},
    state::{Command, Event, Failure, Key, KilledFor, Phase, Poll, Reach, RunEnd, Stage, State, Wanted},
};
use crate::progress::StallReason;

const LEASE: Duration = Duration::from_secs(30);
const BEAT: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(60);

fn lease(task: u128, epoch: u64) -> Lease {
    let hash = "0".repeat(64);
    let spec = serde_json::json!({
        "title": "t",
        "text": "t",
        "base": { "manifest": { "hash": hash, "bytes": 0 }, "tree": hash },
        "model": { "provider": "scripted", "name": "x" },
    });
    Lease {
        task: TaskId(uuid::Uuid::from_u128(task)),
        run: RunId(uuid::Uuid::from_u128(task)),
        attempt: 1,
        epoch: Epoch(epoch),
        token: "t".to_owned(),
        lease_ms: LEASE.as_millis() as u64,
        heartbeat_ms: BEAT.as_millis() as u64,
        head: Head::EMPTY,
        forked: false,
        spec: serde_json::from_value(spec).unwrap(),
        delegated_by: None,
    }
}

fn key(task: u128, epoch: u64) -> Key {
    Key::of(&lease(task, epoch))
}

/// A worker and its clock.
struct Story {
    state: State,
    now: Instant,
}

impl Story {
    fn begin(slots: u32) -> Self {
        let mut story = Self { state: State::new(slots, GRACE), now: Instant::now() };
        let asked = Command::Lease { wanted: Wanted { number: 1, max: slots }, wait: LEASE_WAIT };
        assert_eq!(story.then(Event::Begun), [asked]);
        story
    }

    /// One that has `count` runs and no free slot.
    fn with_runs(count: u32) -> Self {
        let mut story = Self::begin(count);
        let started =
            story.then(Event::Leased((1..=count).map(|n| lease(n.into(), 1)).collect(), Duration::ZERO));
        assert_eq!(started.len(), count as usize + 1, "{started:?}");
        assert!(matches!(started.last(), Some(Command::Heartbeat { wait: BEAT, .. })));
        story
    }

    fn then(&mut self, event: Event) -> Vec<Command> {
        on(&mut self.state, Moment { now: self.now, jitter: 0 }, event)
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Lets time pass as the shell does: from wake to wake.
    fn pass(&mut self, time: Duration) -> Vec<Command> {
        let (until, mut all) = (self.now + time, Vec::new());
        while let Some(wake) = next_wake(&self.state).filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            let before = next_wake(&self.state);
            all.extend(self.then(Event::Tick));
            assert_ne!(next_wake(&self.state), before, "a wake that changes nothing is a spin");
        }
        self.now = until;
        all
    }

    fn renew(&mut self, task: u128) -> Vec<Command> {
        self.then(Event::Beaten { renewed: vec![key(task, 1).task], lost: vec![] })
    }

    fn lose(&mut self, task: u128, why: LostWhy) -> Vec<Command> {
        self.then(Event::Beaten { renewed: vec![], lost: vec![(key(task, 1).task, why)] })
    }
}

/// Every stage by every end. The second column says it once more, in other words.
#[test]
fn the_table_of_ends_is_complete() {
    use Outcome::{Crashed, Fault, GiveBack, Lost, Nothing};
    let at = Instant::now();
    let ends = [
        RunEnd::Finished,
        RunEnd::Drained,
        RunEnd::LeaseLost,
        RunEnd::Exited(101),
        RunEnd::Signalled(9),
        RunEnd::Signalled(15),
        RunEnd::WorkerFault,
        RunEnd::Stalled(StallReason::NoProgress),
    ];
    let exit = || Crashed("exit 101".to_owned());
    let nine = || Crashed("signal 9".to_owned());
    let term = || Crashed("signal 15".to_owned());
    let hangs = || Crashed("no progress in the time it may take; killed".to_owned());
    let table = |stage: Stage| -> [Outcome; 8] {
        match stage {
            Stage::Running => [Nothing, GiveBack, Lost, exit(), nine(), term(), Fault, hangs()],
            Stage::Draining => [Nothing, GiveBack, Lost, exit(), nine(), GiveBack, Fault, hangs()],
            Stage::Killed(KilledFor::Drain) => {
                [Nothing, GiveBack, Lost, GiveBack, GiveBack, GiveBack, Fault, GiveBack]
            }
            Stage::Leaving(_) | Stage::Killed(KilledFor::Lost | KilledFor::Deadline) => {
                [Nothing, Lost, Lost, Lost, Lost, Lost, Lost, Lost]
            }
        }
    };
    for stage in Stage::all(at) {
        for (end, expected) in ends.into_iter().zip(table(stage)) {
            assert_eq!(outcome(stage, end), expected, "{stage:?} {end:?}");
        }
    }
}

#[test]
fn statuses_mean_what_the_bootstrap_says() {
    for status in 0..=255 {
        let expected = match status {
            0 => RunEnd::Finished,
            75 => RunEnd::Drained,
            76 => RunEnd::LeaseLost,
            77 => RunEnd::WorkerFault,
            _ => RunEnd::Exited(status),
        };
        assert_eq!(RunEnd::of_status(status), expected);
    }
}

#[test]
fn each_kind_of_loss() {
    for why in [LostWhy::Expired, LostWhy::Fenced, LostWhy::Cancelled, LostWhy::Unknown] {
        let mut story = Story::with_runs(1);
        assert_eq!(story.lose(1, why), [Command::Kill(key(1, 1), KilledFor::Lost)], "{why:?}");
        let ended = story.then(Event::RunEnded(key(1, 1), RunEnd::Signalled(9), Reach::Work));
        assert!(matches!(ended[..], [Command::Lease { .. }]), "no release: {ended:?}");
    }
    // Its own end, heard of before its exit was seen: it may leave by itself, for a while.
    let mut story = Story::with_runs(1);
    assert_eq!(story.lose(1, LostWhy::Ended), []);
    assert_eq!(story.pass(Duration::from_secs(3)), [Command::Kill(key(1, 1), KilledFor::Lost)]);
    let mut story = Story::with_runs(1);
    story.lose(1, LostWhy::Ended);
    story.then(Event::RunEnded(key(1, 1), RunEnd::Finished, Reach::End));
    assert_eq!((story.state.tally.finished, story.state.tally.lost), (1, 0));
}

#[test]
fn a_renewal_counts_from_when_it_was_asked_for() {
    let mut story = Story::with_runs(1);
    story.after(BEAT).renew(1);
    // Asked at 0, answered at 10: good until 30, not until 40. The one asked at 10 fails.
    story.after(Duration::from_secs(1)).then(Event::BeatFailed);
    let mut killed_after = None;
    for second in 11..60 {
        let said = story.pass(Duration::from_secs(1));
        if said.contains(&Command::Kill(key(1, 1), KilledFor::Deadline)) {
            killed_after.get_or_insert(second + 1);
        }
        if said.iter().any(|command| matches!(command, Command::Heartbeat { .. })) {
            story.then(Event::BeatFailed);
        }
    }
    assert_eq!(killed_after, Some(30));
}

/// Asked for at 0, granted at `held`, here at `came`: good until 30 s after it was granted. No heartbeat gets through.
#[track_caller]
fn a_lease_ends(came: u64, held: u64, ends: u64) {
    let mut story = Story::begin(1);
    let came = Duration::from_secs(came);
    story.after(came).then(Event::Leased(vec![lease(1, 1)], Duration::from_secs(held)));
    let mut killed_after = None;
    for second in came.as_secs()..60 {
        if matches!(story.state.beat, Poll::Asked(..)) {
            story.then(Event::BeatFailed);
        }
        if story.pass(Duration::from_secs(1)).contains(&Command::Kill(key(1, 1), KilledFor::Deadline)) {
            killed_after.get_or_insert(second + 1);
        }
    }
    assert_eq!(killed_after, Some(ends));
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for() {
    // The answer was five seconds on its way.
    a_lease_ends(5, 0, 30);
    // Work came after 19 s of a long poll.
    a_lease_ends(20, 19, 49);
    // A coordinator whose clock runs wild gives no more than a lease from now.
    a_lease_ends(2, 1000, 32);
}

#[test]
fn a_new_lease_is_renewed_though_a_heartbeat_without_it_is_under_way() {
    let mut story = Story::begin(2);
    story.then(Event::Leased(vec![lease(1, 1)], Duration::ZERO));
    story.after(Duration::from_secs(1)).then(Event::Leased(vec![lease(2, 1)], Duration::ZERO));
    let said = story.pass(BEAT / 4);
    let Some(Command::Heartbeat { held, wait }) = said.first() else { panic!("{said:?}") };
    assert_eq!((held.len(), *wait), (2, Duration::ZERO), "it does not wait, so that it is answered");
}

#[test]
fn a_task_that_comes_back_ends_its_older_self() {
    let mut story = Story::begin(2);
    story.then(Event::Leased(vec![lease(1, 1)], Duration::ZERO));
    let said = story.after(Duration::from_secs(1)).then(Event::Leased(vec![lease(1, 2)], Duration::ZERO));
    assert_eq!(said[0], Command::Kill(key(1, 1), KilledFor::Lost));
    assert!(matches!(&said[1], Command::Start(lease) if lease.epoch == Epoch(2)));
    // The answer to the heartbeat under way speaks of the older one.
    let said = story.lose(1, LostWhy::Fenced);
    assert!(!said.contains(&Command::Kill(key(1, 2), KilledFor::Lost)), "{said:?}");
}

#[test]
fn the_same_request_is_sent_again_under_the_same_number() {
    let mut story = Story::begin(3);
    assert_eq!(story.then(Event::LeaseFailed(Failure::Away)), []);
    let again = story.pass(Duration::from_secs(1));
    let same = Command::Lease { wanted: Wanted { number: 1, max: 3 }, wait: LEASE_WAIT };
    assert_eq!(again, [same]);
    // An answer without work is an answer: the next request is another.
    story.after(LEASE_WAIT);
    let next = story.then(Event::Leased(vec![], Duration::ZERO));
    assert!(matches!(next[..], [Command::Lease { wanted: Wanted { number: 2, max: 3 }, .. }]), "{next:?}");
    // One that came at once is not asked again at once.
    assert_eq!(story.then(Event::Leased(vec![], Duration::ZERO)), []);
    assert!(!story.pass(Duration::from_secs(1)).is_empty());
}

#[test]
fn a_drain_gives_back_what_its_last_request_brought() {
    let mut story = Story::begin(2);
    let hurried = Command::Lease { wanted: Wanted { number: 1, max: 2 }, wait: Duration::ZERO };
    assert_eq!(story.then(Event::Signal), [hurried]);
    let given = story.then(Event::Leased(vec![lease(1, 1)], Duration::ZERO));
    assert_eq!(given, [Command::Release(key(1, 1), ReleaseReason::Drained)]);
    assert_eq!(story.then(Event::Released(key(1, 1))), [Command::Finish]);
}

#[test]
fn a_drain_asks_waits_kills_and_reports() {
    let mut story = Story::with_runs(2);
    let asked = story.then(Event::Signal);
    assert_eq!(asked, [Command::Terminate(key(1, 1)), Command::Terminate(key(2, 1))]);
    let given = story.then(Event::RunEnded(key(1, 1), RunEnd::Drained, Reach::Work));
    assert_eq!(given, [Command::Release(key(1, 1), ReleaseReason::Drained)]);
    story.then(Event::Released(key(1, 1)));
    for _ in 0..6 {
        story.after(BEAT).renew(2);
    }
    assert_eq!(story.state.phase, Phase::Killing);
    story.then(Event::RunEnded(key(2, 1), RunEnd::Signalled(9), Reach::Work));
    assert_eq!(story.then(Event::Released(key(2, 1))), [Command::Finish]);

    let mut story = Story::with_runs(1);
    story.then(Event::Signal);
    assert_eq!(story.then(Event::Signal), [Command::Kill(key(1, 1), KilledFor::Drain)]);
    story.then(Event::RunEnded(key(1, 1), RunEnd::Signalled(9), Reach::Work));
    // Nobody takes the release: the worker does not wait for ever.
    story.then(Event::ReleaseFailed(key(1, 1), Failure::Away));
    assert_eq!(story.pass(Duration::from_secs(5)).last(), Some(&Command::Finish));
}

#[test]
fn a_release_is_tried_until_the_lease_is_over() {
    let mut story = Story::with_runs(1);
    let ended = story.then(Event::RunEnded(key(1, 1), RunEnd::Signalled(9), Reach::Work));
    let crashed = Command::Release(key(1, 1), ReleaseReason::Crashed("signal 9".to_owned()));
    assert_eq!(ended[0], crashed);
    let mut tries = 1;
    for _ in 0..60 {
        story.then(Event::ReleaseFailed(key(1, 1), Failure::Away));
        tries += story.pass(Duration::from_secs(1)).iter().filter(|said| **said == crashed).count();
    }
    assert!((10..32).contains(&tries), "{tries}");
    assert!(story.state.releases.is_empty());
}

fn fault(scope: FaultScope) -> WorkerFault {
    WorkerFault::new(FaultKind::McpServer, scope, "no server")
}

/// What is said of faults with the request for work that is under way.
fn said_of_faults(story: &Story) -> Vec<bool> {
    assert_eq!(story.state.lease_version, story.state.quarantine.version(), "the request says all");
    let faults = story.state.quarantine.faults();
    let of_many = faults.iter().filter(|fault| !matches!(fault.scope, FaultScope::Task(_)));
    of_many.map(|fault| fault.is_probed).collect()
}

#[test]
fn a_fault_of_the_worker_leaves_its_tasks_to_others_until_a_trial_succeeds() {
    let mut story = Story::with_runs(2);
    let ended = story.then(Event::RunFaulted(key(1, 1), fault(FaultScope::AnyTask)));
    assert_eq!(ended[0], Command::Release(key(1, 1), ReleaseReason::WorkerFault("no server".to_owned())));
    assert!(matches!(ended[1], Command::Lease { wanted: Wanted { number: 2, max: 1 }, .. }), "{ended:?}");
    assert_eq!(said_of_faults(&story), [false]);
    story.then(Event::Released(key(1, 1)));
    // What was granted before the coordinator heard of it is given back at once.
    let given = story.then(Event::Leased(vec![lease(3, 1)], Duration::ZERO));
    assert_eq!(given[0], Command::Release(key(3, 1), ReleaseReason::Drained), "it was not tried");
    story.then(Event::Released(key(3, 1)));
    story.then(Event::RunEnded(key(2, 1), RunEnd::Finished, Reach::End));
    // After the pause one task is wanted, though two slots are free.
    let later = story.pass(Duration::from_secs(2));
    let Some(Command::Lease { wanted, .. }) = later.last() else { panic!("{later:?}") };
    assert_eq!((wanted.max, said_of_faults(&story)), (1, vec![true]));
    // While it runs, others are kept away; once it has ended, none are.
    let started = story.then(Event::Leased(vec![lease(4, 1)], Duration::ZERO));
    assert!(matches!(started[0], Command::Start(_)), "{started:?}");
    assert_eq!(said_of_faults(&story), [false]);
    let ended = story.then(Event::RunEnded(key(4, 1), RunEnd::Finished, Reach::End));
    assert!(matches!(ended[..], [Command::Lease { .. }]), "asked again with what is known: {ended:?}");
    assert!(said_of_faults(&story).is_empty());
    assert_eq!((story.state.tally.faulted, story.state.tally.crashed), (2, 0));
}

#[test]
fn a_worker_that_stays_faulty_asks_for_less_and_less() {
    let mut story = Story::with_runs(1);
    story.then(Event::RunFaulted(key(1, 1), fault(FaultScope::AnyTask)));
    story.then(Event::Released(key(1, 1)));
    let mut trials = 0;
    for second in 0..3600 {
        for command in story.pass(Duration::from_secs(1)) {
            if matches!(command, Command::Lease { .. }) && story.state.quarantine.is_probing() {
                trials += 1;
                let task = lease(2 + second, 1);
                let key = Key::of(&task);
                story.then(Event::Leased(vec![task], Duration::ZERO));
                story.then(Event::RunFaulted(key, fault(FaultScope::AnyTask)));
                story.then(Event::Released(key));
            }
        }
    }
    assert!((30..=75).contains(&trials), "{trials} in an hour");
}

#[test]
fn a_fault_that_does_not_fit_the_task_or_was_not_reported_concerns_that_task_alone() {
    let other = FaultScope::Setup("0123456789abcdef".to_owned());
    for event in [
        Event::RunFaulted(key(1, 1), fault(other)),
        Event::RunEnded(key(1, 1), RunEnd::WorkerFault, Reach::Work),
    ] {
        let mut story = Story::with_runs(1);
        story.then(event);
        let faults = story.state.quarantine.faults();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].scope, FaultScope::Task(key(1, 1).task));
    }
}

#[test]
fn a_run_that_ended_before_its_work_does_not_end_a_fault() {
    let fault_after = |end: RunEnd, reach: Reach| {
        let mut story = Story::with_runs(1);
        story.then(Event::RunFaulted(key(1, 1), fault(FaultScope::AnyTask)));
        story.then(Event::Released(key(1, 1)));
        story.pass(Duration::from_secs(2));
        story.then(Event::Leased(vec![lease(2, 1)], Duration::ZERO));
        story.then(Event::RunEnded(key(2, 1), end, reach));
        said_of_faults(&story)
    };
    assert_eq!(fault_after(RunEnd::Signalled(9), Reach::Start), [true]);
    assert_eq!(fault_after(RunEnd::Finished, Reach::Start), [true]);
    assert_eq!(fault_after(RunEnd::Drained, Reach::Work), [true]);
    assert!(fault_after(RunEnd::Signalled(9), Reach::Work).is_empty());
    assert!(fault_after(RunEnd::Finished, Reach::End).is_empty());
}

#[test]
fn a_task_that_reports_again_and_again_keeps_no_other_task_away() {
    let mut story = Story::with_runs(1);
    story.then(Event::RunFaulted(key(1, 1), fault(FaultScope::AnyTask)));
    story.then(Event::Released(key(1, 1)));
    for epoch in 2..20 {
        // Nothing else to do: its turn comes again once the others had theirs.
        story.pass(Duration::from_secs(130));
        let started = story.then(Event::Leased(vec![lease(1, epoch)], Duration::ZERO));
        assert!(matches!(started[0], Command::Start(_)), "{started:?}");
        story.then(Event::RunFaulted(key(1, epoch), fault(FaultScope::AnyTask)));
        story.then(Event::Released(key(1, epoch)));
        assert!(said_of_faults(&story).is_empty(), "{epoch}: it concerns task 1 alone");
    }
    let started = story.then(Event::Leased(vec![lease(2, 1)], Duration::ZERO));
    assert!(matches!(started[0], Command::Start(_)), "{started:?}");
}

#[test]
fn a_refused_token_drains_the_worker() {
    let mut story = Story::begin(1);
    assert_eq!(story.then(Event::LeaseFailed(Failure::Final)), [Command::Finish]);
}

/// What may happen next, as numbers that a shrinking test can play with.
fn happening() -> impl Strategy<Value = (u8, u8, u8, u64)> {
    (0_u8..16, 0_u8..6, 0_u8..4, 0_u64..20_000)
}

/// Only what can happen does: answers to what was asked, ends of what was started.
/// `epoch` is one that was not given before: the coordinator never gives one twice.
fn event_of(state: &State, (what, who, how): (u8, u8, u8), epoch: u64) -> Event {
    let runs: Vec<Key> = state.runs.keys().copied().collect();
    let of = |keys: &[Key]| keys.get(usize::from(who) % keys.len().max(1)).copied();
    let leases_asked = matches!(state.lease, Poll::Asked(..));
    let beat_asked = matches!(state.beat, Poll::Asked(..));
    match what {
        0..=3 if leases_asked => Event::Leased(
            (0..how).map(|n| lease((who + n).into(), epoch)).collect(),
            Duration::from_secs(how.into()),
        ),
        4 if leases_asked => Event::LeaseFailed(Failure::Away),
        5..=6 if beat_asked => {
            Event::Beaten { renewed: runs.iter().map(|key| key.task).collect(), lost: vec![] }
        }
        7 if beat_asked => {
            let why = [LostWhy::Fenced, LostWhy::Ended, LostWhy::Cancelled, LostWhy::Expired];
            let lost = of(&runs).map(|key| (key.task, why[usize::from(how)]));
            Event::Beaten { renewed: vec![], lost: lost.into_iter().collect() }
        }
        8 if beat_asked => Event::BeatFailed,
        9..=11 => {
            let ends = [RunEnd::Finished, RunEnd::Signalled(9), RunEnd::Drained, RunEnd::WorkerFault];
            of(&runs).map_or(Event::Tick, |key| Event::RunEnded(key, ends[usize::from(how)], Reach::Work))
        }
        12..=13 => {
            let waiting: Vec<Key> =
                state.releases.iter().filter(|(_, r)| r.again_at.is_none()).map(|(key, _)| *key).collect();
            match (of(&waiting), how) {
                (Some(key), 0) => Event::ReleaseFailed(key, Failure::Away),
                (Some(key), 1) => Event::ReleaseFailed(key, Failure::Final),
                (Some(key), _) => Event::Released(key),
                (None, _) => Event::Tick,
            }
        }
        14 if who == 0 => Event::Signal,
        _ => Event::Tick,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold(happenings in prop::collection::vec(happening(), 1..120)) {
        let mut story = Story::begin(3);
        let (mut killed_as_lost, mut alive) = (BTreeSet::new(), BTreeSet::new());
        for (nth_epoch, (what, who, how, later_ms)) in happenings.into_iter().enumerate() {
            // The shell wakes at every instant it was told; what comes later comes after a tick.
            let mut said = story.pass(Duration::from_millis(later_ms));
            let event = event_of(&story.state, (what, who, how), nth_epoch as u64);
            let ended = match &event {
                Event::RunEnded(key, ..) | Event::RunFaulted(key, _) => Some(*key),
                _ => None,
            };
            let before = said.len();
            said.extend(story.then(event));
            for (nth, command) in said.into_iter().enumerate() {
                if nth == before && let Some(key) = ended {
                    alive.remove(&key);
                }
                prop_assert!(!matches!(command, Command::Finish) || alive.is_empty());
                match command {
                    Command::Lease { wanted, .. } => {
                        prop_assert!(wanted.max >= 1 && wanted.max as usize + alive.len() <= 3);
                    }
                    Command::Start(lease) => {
                        prop_assert!(story.state.phase == Phase::Leasing);
                        prop_assert!(alive.insert(Key::of(&lease)) && alive.len() <= 3);
                        killed_as_lost.remove(&Key::of(&lease));
                    }
                    Command::Kill(key, why) => {
                        prop_assert!(alive.contains(&key));
                        if why != KilledFor::Drain {
                            killed_as_lost.insert(key);
                        }
                    }
                    Command::Release(key, _) => {
                        prop_assert!(!alive.contains(&key) && !killed_as_lost.contains(&key));
                    }
                    Command::Terminate(key) => prop_assert!(alive.contains(&key)),
                    Command::Heartbeat { held, .. } => {
                        prop_assert!(!held.is_empty());
                        let tasks: BTreeSet<_> = held.iter().map(|held| held.task).collect();
                        prop_assert_eq!(tasks.len(), held.len(), "a task twice");
                        for held in held {
                            let key = Key { task: held.task, epoch: held.epoch };
                            prop_assert!(alive.contains(&key) && !killed_as_lost.contains(&key));
                        }
                    }
                    Command::Finish => {
                        prop_assert!(story.state.releases.is_empty());
                        return Ok(());
                    }
                }
            }
            if let Some(key) = ended {
                alive.remove(&key);
            }
            for run in story.state.runs.values() {
                let works = matches!(run.stage, Stage::Running | Stage::Draining);
                prop_assert!(!works || run.vouched_until > story.now, "works on without a lease");
            }
        }
    }
}
