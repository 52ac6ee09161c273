//! The dispatcher's rules, enumerated, and against random sequences.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use docket_schema::{
    api::{FaultKind, FaultScope, Lease, LeaseLostReason, ReleaseReason, WorkerFault},
    event::Head,
    ids::{Epoch, RunId, TaskId},
};
use proptest::prelude::*;

use super::{
    decide::{LeaseOutcome, NowWithJitter, handle_event, lease_outcome, next_wake},
    lease_request::LEASE_WAIT,
    state::{
        CallFailure, DispatcherCommand, DispatcherEvent, DispatcherState, LeaseAttempt, LeaseKey, PollState,
        ProcessStage, RunEnd, RunKillReason, RunMilestone, WorkerPhase,
    },
};
use crate::progress::StallReason;

const LEASE_TIME: Duration = Duration::from_secs(30);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(60);

fn sample_lease(task: u128, epoch: u64) -> Lease {
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
        lease_ms: LEASE_TIME.as_millis() as u64,
        heartbeat_ms: HEARTBEAT_INTERVAL.as_millis() as u64,
        head: Head::EMPTY,
        forked: false,
        spec: serde_json::from_value(spec).unwrap(),
        delegated_by: None,
    }
}

fn lease_key(task: u128, epoch: u64) -> LeaseKey {
    LeaseKey::from_lease(&sample_lease(task, epoch))
}

/// A worker and its clock.
struct DispatcherScenario {
    state: DispatcherState,
    now: Instant,
}

impl DispatcherScenario {
    fn with_slots(slots: u32) -> Self {
        let mut story = Self { state: DispatcherState::new(slots, GRACE), now: Instant::now() };
        let asked =
            DispatcherCommand::Lease { attempt: LeaseAttempt { number: 1, max: slots }, wait: LEASE_WAIT };
        assert_eq!(story.handle_event(DispatcherEvent::Started), [asked]);
        story
    }

    /// One that has `count` runs and no free slot.
    fn with_runs(count: u32) -> Self {
        let mut story = Self::with_slots(count);
        let started = story.handle_event(DispatcherEvent::Leased(
            (1..=count).map(|n| sample_lease(n.into(), 1)).collect(),
            Duration::ZERO,
        ));
        assert_eq!(started.len(), count as usize + 1, "{started:?}");
        assert!(matches!(
            started.last(),
            Some(DispatcherCommand::Heartbeat { wait: HEARTBEAT_INTERVAL, .. })
        ));
        story
    }

    fn handle_event(&mut self, event: DispatcherEvent) -> Vec<DispatcherCommand> {
        handle_event(&mut self.state, NowWithJitter { now: self.now, jitter: 0 }, event)
    }

    fn advance_time(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Advances time like the dispatcher: from wake to wake.
    fn wait_and_tick(&mut self, time: Duration) -> Vec<DispatcherCommand> {
        let (until, mut all) = (self.now + time, Vec::new());
        while let Some(wake) = next_wake(&self.state).filter(|wake| *wake <= until) {
            self.now = self.now.max(wake);
            let before = next_wake(&self.state);
            all.extend(self.handle_event(DispatcherEvent::Tick));
            assert_ne!(next_wake(&self.state), before, "a wake that changes nothing is a spin");
        }
        self.now = until;
        all
    }

    fn renew_task(&mut self, task: u128) -> Vec<DispatcherCommand> {
        self.handle_event(DispatcherEvent::HeartbeatAcknowledged {
            renewed: vec![lease_key(task, 1).task],
            lost: vec![],
        })
    }

    fn lose_task(&mut self, task: u128, why: LeaseLostReason) -> Vec<DispatcherCommand> {
        self.handle_event(DispatcherEvent::HeartbeatAcknowledged {
            renewed: vec![],
            lost: vec![(lease_key(task, 1).task, why)],
        })
    }
}

/// Every stage with every end. The second column restates the rule independently.
#[test]
fn lease_outcome_table_is_complete() {
    use LeaseOutcome::{Lost, Recorded, Release, ReleaseAsCrashed, ReleaseAsFaulted};
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
    let exit = || ReleaseAsCrashed("exit 101".to_owned());
    let nine = || ReleaseAsCrashed("signal 9".to_owned());
    let term = || ReleaseAsCrashed("signal 15".to_owned());
    let hangs = || ReleaseAsCrashed("no progress within the time limit; killed".to_owned());
    let table = |stage: ProcessStage| -> [LeaseOutcome; 8] {
        match stage {
            ProcessStage::Running => {
                [Recorded, Release, Lost, exit(), nine(), term(), ReleaseAsFaulted, hangs()]
            }
            ProcessStage::Draining => {
                [Recorded, Release, Lost, exit(), nine(), Release, ReleaseAsFaulted, hangs()]
            }
            ProcessStage::Killed(RunKillReason::Drain) => {
                [Recorded, Release, Lost, Release, Release, Release, ReleaseAsFaulted, Release]
            }
            ProcessStage::Exiting(_)
            | ProcessStage::Killed(RunKillReason::Lost | RunKillReason::Deadline) => {
                [Recorded, Lost, Lost, Lost, Lost, Lost, Lost, Lost]
            }
        }
    };
    for stage in ProcessStage::all_stages(at) {
        for (end, expected) in ends.into_iter().zip(table(stage)) {
            assert_eq!(lease_outcome(stage, end), expected, "{stage:?} {end:?}");
        }
    }
}

#[test]
fn exit_statuses_map_to_run_ends() {
    for status in 0..=255 {
        let expected = match status {
            0 => RunEnd::Finished,
            75 => RunEnd::Drained,
            76 => RunEnd::LeaseLost,
            77 => RunEnd::WorkerFault,
            _ => RunEnd::Exited(status),
        };
        assert_eq!(RunEnd::from_status(status), expected);
    }
}

#[test]
fn each_lost_reason_ends_the_run_as_specified() {
    for why in [
        LeaseLostReason::Expired,
        LeaseLostReason::Fenced,
        LeaseLostReason::Cancelled,
        LeaseLostReason::Unknown,
    ] {
        let mut story = DispatcherScenario::with_runs(1);
        assert_eq!(
            story.lose_task(1, why),
            [DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Lost)],
            "{why:?}"
        );
        let ended = story.handle_event(DispatcherEvent::RunEnded(
            lease_key(1, 1),
            RunEnd::Signalled(9),
            RunMilestone::Working,
        ));
        assert!(matches!(ended[..], [DispatcherCommand::Lease { .. }]), "no release: {ended:?}");
    }
    // The end of its task, learned before its exit was seen: it may exit by itself for a while.
    let mut story = DispatcherScenario::with_runs(1);
    assert_eq!(story.lose_task(1, LeaseLostReason::Ended), []);
    assert_eq!(
        story.wait_and_tick(Duration::from_secs(3)),
        [DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Lost)]
    );
    let mut story = DispatcherScenario::with_runs(1);
    story.lose_task(1, LeaseLostReason::Ended);
    story.handle_event(DispatcherEvent::RunEnded(lease_key(1, 1), RunEnd::Finished, RunMilestone::Ended));
    assert_eq!((story.state.tally.finished, story.state.tally.lost), (1, 0));
}

#[test]
fn renewal_counts_from_its_request() {
    let mut story = DispatcherScenario::with_runs(1);
    story.advance_time(HEARTBEAT_INTERVAL).renew_task(1);
    // Sent at 0, acknowledged at 10: valid until 30, not until 40. The one sent at 10 fails.
    story.advance_time(Duration::from_secs(1)).handle_event(DispatcherEvent::HeartbeatFailed);
    let mut killed_after = None;
    for second in 11..60 {
        let said = story.wait_and_tick(Duration::from_secs(1));
        if said.contains(&DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Deadline)) {
            killed_after.get_or_insert(second + 1);
        }
        if said.iter().any(|command| matches!(command, DispatcherCommand::Heartbeat { .. })) {
            story.handle_event(DispatcherEvent::HeartbeatFailed);
        }
    }
    assert_eq!(killed_after, Some(30));
}

/// Requested at 0, granted at `held`, received at `came`: valid until 30 s after the grant. No heartbeat gets
/// through.
#[track_caller]
fn assert_lease_ends(came: u64, held: u64, ends: u64) {
    let mut story = DispatcherScenario::with_slots(1);
    let came = Duration::from_secs(came);
    story
        .advance_time(came)
        .handle_event(DispatcherEvent::Leased(vec![sample_lease(1, 1)], Duration::from_secs(held)));
    let mut killed_after = None;
    for second in came.as_secs()..60 {
        if matches!(story.state.heartbeat_poll, PollState::InFlight(..)) {
            story.handle_event(DispatcherEvent::HeartbeatFailed);
        }
        if story
            .wait_and_tick(Duration::from_secs(1))
            .contains(&DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Deadline))
        {
            killed_after.get_or_insert(second + 1);
        }
    }
    assert_eq!(killed_after, Some(ends));
}

#[test]
fn lease_counts_from_its_request() {
    // The reply took five seconds.
    assert_lease_ends(5, 0, 30);
    // Work arrived after 19 s of a long poll.
    assert_lease_ends(20, 19, 49);
    // A coordinator with a wrong clock grants no more than one lease time from now.
    assert_lease_ends(2, 1000, 32);
}

#[test]
fn new_lease_is_renewed_during_an_inflight_heartbeat() {
    let mut story = DispatcherScenario::with_slots(2);
    story.handle_event(DispatcherEvent::Leased(vec![sample_lease(1, 1)], Duration::ZERO));
    story
        .advance_time(Duration::from_secs(1))
        .handle_event(DispatcherEvent::Leased(vec![sample_lease(2, 1)], Duration::ZERO));
    let said = story.wait_and_tick(HEARTBEAT_INTERVAL / 4);
    let Some(DispatcherCommand::Heartbeat { leases: held, wait }) = said.first() else { panic!("{said:?}") };
    assert_eq!((held.len(), *wait), (2, Duration::ZERO), "it does not wait, so that it is answered");
}

#[test]
fn newer_epoch_of_a_task_kills_the_older_run() {
    let mut story = DispatcherScenario::with_slots(2);
    story.handle_event(DispatcherEvent::Leased(vec![sample_lease(1, 1)], Duration::ZERO));
    let said = story
        .advance_time(Duration::from_secs(1))
        .handle_event(DispatcherEvent::Leased(vec![sample_lease(1, 2)], Duration::ZERO));
    assert_eq!(said[0], DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Lost));
    assert!(matches!(&said[1], DispatcherCommand::Start(lease) if lease.epoch == Epoch(2)));
    // The reply to the heartbeat in flight refers to the older one.
    let said = story.lose_task(1, LeaseLostReason::Fenced);
    assert!(!said.contains(&DispatcherCommand::Kill(lease_key(1, 2), RunKillReason::Lost)), "{said:?}");
}

#[test]
fn retried_lease_request_keeps_its_number() {
    let mut story = DispatcherScenario::with_slots(3);
    assert_eq!(story.handle_event(DispatcherEvent::LeaseFailed(CallFailure::Retryable)), []);
    let again = story.wait_and_tick(Duration::from_secs(1));
    let same = DispatcherCommand::Lease { attempt: LeaseAttempt { number: 1, max: 3 }, wait: LEASE_WAIT };
    assert_eq!(again, [same]);
    // A reply without work is still a reply: the next request is a different one.
    story.advance_time(LEASE_WAIT);
    let next = story.handle_event(DispatcherEvent::Leased(vec![], Duration::ZERO));
    assert!(
        matches!(next[..], [DispatcherCommand::Lease { attempt: LeaseAttempt { number: 2, max: 3 }, .. }]),
        "{next:?}"
    );
    // After an immediate reply, the next request is delayed.
    assert_eq!(story.handle_event(DispatcherEvent::Leased(vec![], Duration::ZERO)), []);
    assert!(!story.wait_and_tick(Duration::from_secs(1)).is_empty());
}

#[test]
fn drain_releases_leases_granted_by_the_last_request() {
    let mut story = DispatcherScenario::with_slots(2);
    let hurried =
        DispatcherCommand::Lease { attempt: LeaseAttempt { number: 1, max: 2 }, wait: Duration::ZERO };
    assert_eq!(story.handle_event(DispatcherEvent::TerminationSignal), [hurried]);
    let given = story.handle_event(DispatcherEvent::Leased(vec![sample_lease(1, 1)], Duration::ZERO));
    assert_eq!(given, [DispatcherCommand::Release(lease_key(1, 1), ReleaseReason::Drained)]);
    assert_eq!(story.handle_event(DispatcherEvent::Released(lease_key(1, 1))), [DispatcherCommand::Finish]);
}

#[test]
fn drain_terminates_waits_kills_and_finishes() {
    let mut story = DispatcherScenario::with_runs(2);
    let asked = story.handle_event(DispatcherEvent::TerminationSignal);
    assert_eq!(
        asked,
        [DispatcherCommand::Terminate(lease_key(1, 1)), DispatcherCommand::Terminate(lease_key(2, 1))]
    );
    let given = story.handle_event(DispatcherEvent::RunEnded(
        lease_key(1, 1),
        RunEnd::Drained,
        RunMilestone::Working,
    ));
    assert_eq!(given, [DispatcherCommand::Release(lease_key(1, 1), ReleaseReason::Drained)]);
    story.handle_event(DispatcherEvent::Released(lease_key(1, 1)));
    for _ in 0..6 {
        story.advance_time(HEARTBEAT_INTERVAL).renew_task(2);
    }
    assert_eq!(story.state.phase, WorkerPhase::Killing);
    story.handle_event(DispatcherEvent::RunEnded(
        lease_key(2, 1),
        RunEnd::Signalled(9),
        RunMilestone::Working,
    ));
    assert_eq!(story.handle_event(DispatcherEvent::Released(lease_key(2, 1))), [DispatcherCommand::Finish]);

    let mut story = DispatcherScenario::with_runs(1);
    story.handle_event(DispatcherEvent::TerminationSignal);
    assert_eq!(
        story.handle_event(DispatcherEvent::TerminationSignal),
        [DispatcherCommand::Kill(lease_key(1, 1), RunKillReason::Drain)]
    );
    story.handle_event(DispatcherEvent::RunEnded(
        lease_key(1, 1),
        RunEnd::Signalled(9),
        RunMilestone::Working,
    ));
    // No release is accepted: the worker does not wait forever.
    story.handle_event(DispatcherEvent::ReleaseFailed(lease_key(1, 1), CallFailure::Retryable));
    assert_eq!(story.wait_and_tick(Duration::from_secs(5)).last(), Some(&DispatcherCommand::Finish));
}

#[test]
fn release_is_retried_until_the_lease_expires() {
    let mut story = DispatcherScenario::with_runs(1);
    let ended = story.handle_event(DispatcherEvent::RunEnded(
        lease_key(1, 1),
        RunEnd::Signalled(9),
        RunMilestone::Working,
    ));
    let crashed = DispatcherCommand::Release(lease_key(1, 1), ReleaseReason::Crashed("signal 9".to_owned()));
    assert_eq!(ended[0], crashed);
    let mut tries = 1;
    for _ in 0..60 {
        story.handle_event(DispatcherEvent::ReleaseFailed(lease_key(1, 1), CallFailure::Retryable));
        tries += story.wait_and_tick(Duration::from_secs(1)).iter().filter(|said| **said == crashed).count();
    }
    assert!((10..32).contains(&tries), "{tries}");
    assert!(story.state.releases.is_empty());
}

fn sample_fault(scope: FaultScope) -> WorkerFault {
    WorkerFault::new(FaultKind::McpServer, scope, "no server")
}

/// The faults sent with the lease request in flight.
fn reported_probes(story: &DispatcherScenario) -> Vec<bool> {
    assert_eq!(story.state.faults_version, story.state.quarantine.version(), "the request says all");
    let faults = story.state.quarantine.reported_faults();
    let of_many = faults.iter().filter(|fault| !matches!(fault.scope, FaultScope::Task(_)));
    of_many.map(|fault| fault.is_probed).collect()
}

#[test]
fn worker_fault_keeps_tasks_away_until_a_trial_succeeds() {
    let mut story = DispatcherScenario::with_runs(2);
    let ended =
        story.handle_event(DispatcherEvent::RunFaulted(lease_key(1, 1), sample_fault(FaultScope::AnyTask)));
    assert_eq!(
        ended[0],
        DispatcherCommand::Release(lease_key(1, 1), ReleaseReason::WorkerFault("no server".to_owned()))
    );
    assert!(
        matches!(ended[1], DispatcherCommand::Lease { attempt: LeaseAttempt { number: 2, max: 1 }, .. }),
        "{ended:?}"
    );
    assert_eq!(reported_probes(&story), [false]);
    story.handle_event(DispatcherEvent::Released(lease_key(1, 1)));
    // Leases granted before the coordinator learned of it are released at once.
    let given = story.handle_event(DispatcherEvent::Leased(vec![sample_lease(3, 1)], Duration::ZERO));
    assert_eq!(
        given[0],
        DispatcherCommand::Release(lease_key(3, 1), ReleaseReason::Drained),
        "it was not tried"
    );
    story.handle_event(DispatcherEvent::Released(lease_key(3, 1)));
    story.handle_event(DispatcherEvent::RunEnded(lease_key(2, 1), RunEnd::Finished, RunMilestone::Ended));
    // After the pause one task is wanted, though two slots are free.
    let later = story.wait_and_tick(Duration::from_secs(2));
    let Some(DispatcherCommand::Lease { attempt: wanted, .. }) = later.last() else { panic!("{later:?}") };
    assert_eq!((wanted.max, reported_probes(&story)), (1, vec![true]));
    // While it runs, others are kept away; once it has ended, none are.
    let started = story.handle_event(DispatcherEvent::Leased(vec![sample_lease(4, 1)], Duration::ZERO));
    assert!(matches!(started[0], DispatcherCommand::Start(_)), "{started:?}");
    assert_eq!(reported_probes(&story), [false]);
    let ended =
        story.handle_event(DispatcherEvent::RunEnded(lease_key(4, 1), RunEnd::Finished, RunMilestone::Ended));
    assert!(
        matches!(ended[..], [DispatcherCommand::Lease { .. }]),
        "asked again with what is known: {ended:?}"
    );
    assert!(reported_probes(&story).is_empty());
    assert_eq!((story.state.tally.faulted, story.state.tally.crashed), (2, 0));
}

#[test]
fn persistent_fault_requests_work_less_often() {
    let mut story = DispatcherScenario::with_runs(1);
    story.handle_event(DispatcherEvent::RunFaulted(lease_key(1, 1), sample_fault(FaultScope::AnyTask)));
    story.handle_event(DispatcherEvent::Released(lease_key(1, 1)));
    let mut trials = 0;
    for second in 0..3600 {
        for command in story.wait_and_tick(Duration::from_secs(1)) {
            if matches!(command, DispatcherCommand::Lease { .. }) && story.state.quarantine.is_probing() {
                trials += 1;
                let task = sample_lease(2 + second, 1);
                let key = LeaseKey::from_lease(&task);
                story.handle_event(DispatcherEvent::Leased(vec![task], Duration::ZERO));
                story.handle_event(DispatcherEvent::RunFaulted(key, sample_fault(FaultScope::AnyTask)));
                story.handle_event(DispatcherEvent::Released(key));
            }
        }
    }
    assert!((30..=75).contains(&trials), "{trials} in an hour");
}

#[test]
fn unrelated_or_unreported_fault_concerns_its_task_alone() {
    let other = FaultScope::Setup("0123456789abcdef".to_owned());
    for event in [
        DispatcherEvent::RunFaulted(lease_key(1, 1), sample_fault(other)),
        DispatcherEvent::RunEnded(lease_key(1, 1), RunEnd::WorkerFault, RunMilestone::Working),
    ] {
        let mut story = DispatcherScenario::with_runs(1);
        story.handle_event(event);
        let faults = story.state.quarantine.reported_faults();
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].scope, FaultScope::Task(lease_key(1, 1).task));
    }
}

#[test]
fn run_that_ended_before_working_does_not_clear_a_fault() {
    let fault_after = |end: RunEnd, reach: RunMilestone| {
        let mut story = DispatcherScenario::with_runs(1);
        story.handle_event(DispatcherEvent::RunFaulted(lease_key(1, 1), sample_fault(FaultScope::AnyTask)));
        story.handle_event(DispatcherEvent::Released(lease_key(1, 1)));
        story.wait_and_tick(Duration::from_secs(2));
        story.handle_event(DispatcherEvent::Leased(vec![sample_lease(2, 1)], Duration::ZERO));
        story.handle_event(DispatcherEvent::RunEnded(lease_key(2, 1), end, reach));
        reported_probes(&story)
    };
    assert_eq!(fault_after(RunEnd::Signalled(9), RunMilestone::Starting), [true]);
    assert_eq!(fault_after(RunEnd::Finished, RunMilestone::Starting), [true]);
    assert_eq!(fault_after(RunEnd::Drained, RunMilestone::Working), [true]);
    assert!(fault_after(RunEnd::Signalled(9), RunMilestone::Working).is_empty());
    assert!(fault_after(RunEnd::Finished, RunMilestone::Ended).is_empty());
}

#[test]
fn repeated_reports_of_one_task_keep_no_other_task_away() {
    let mut story = DispatcherScenario::with_runs(1);
    story.handle_event(DispatcherEvent::RunFaulted(lease_key(1, 1), sample_fault(FaultScope::AnyTask)));
    story.handle_event(DispatcherEvent::Released(lease_key(1, 1)));
    for epoch in 2..20 {
        // No other work: its turn comes again after the others had theirs.
        story.wait_and_tick(Duration::from_secs(130));
        let started =
            story.handle_event(DispatcherEvent::Leased(vec![sample_lease(1, epoch)], Duration::ZERO));
        assert!(matches!(started[0], DispatcherCommand::Start(_)), "{started:?}");
        story.handle_event(DispatcherEvent::RunFaulted(
            lease_key(1, epoch),
            sample_fault(FaultScope::AnyTask),
        ));
        story.handle_event(DispatcherEvent::Released(lease_key(1, epoch)));
        assert!(reported_probes(&story).is_empty(), "{epoch}: it concerns task 1 alone");
    }
    let started = story.handle_event(DispatcherEvent::Leased(vec![sample_lease(2, 1)], Duration::ZERO));
    assert!(matches!(started[0], DispatcherCommand::Start(_)), "{started:?}");
}

#[test]
fn refused_token_drains_the_worker() {
    let mut story = DispatcherScenario::with_slots(1);
    assert_eq!(
        story.handle_event(DispatcherEvent::LeaseFailed(CallFailure::Final)),
        [DispatcherCommand::Finish]
    );
}

/// Possible next steps, as numbers that shrinking can work with.
fn arbitrary_happening() -> impl Strategy<Value = (u8, u8, u8, u64)> {
    (0_u8..16, 0_u8..6, 0_u8..4, 0_u64..20_000)
}

/// Generates only possible events: replies to requests, ends of started runs. `epoch` is new: the coordinator never
/// assigns one twice.
fn event_from_happening(
    state: &DispatcherState,
    (what, who, how): (u8, u8, u8),
    epoch: u64,
) -> DispatcherEvent {
    let runs: Vec<LeaseKey> = state.runs.keys().copied().collect();
    let of = |keys: &[LeaseKey]| keys.get(usize::from(who) % keys.len().max(1)).copied();
    let leases_asked = matches!(state.lease_poll, PollState::InFlight(..));
    let beat_asked = matches!(state.heartbeat_poll, PollState::InFlight(..));
    match what {
        0..=3 if leases_asked => DispatcherEvent::Leased(
            (0..how).map(|n| sample_lease((who + n).into(), epoch)).collect(),
            Duration::from_secs(how.into()),
        ),
        4 if leases_asked => DispatcherEvent::LeaseFailed(CallFailure::Retryable),
        5..=6 if beat_asked => DispatcherEvent::HeartbeatAcknowledged {
            renewed: runs.iter().map(|key| key.task).collect(),
            lost: vec![],
        },
        7 if beat_asked => {
            let why = [
                LeaseLostReason::Fenced,
                LeaseLostReason::Ended,
                LeaseLostReason::Cancelled,
                LeaseLostReason::Expired,
            ];
            let lost = of(&runs).map(|key| (key.task, why[usize::from(how)]));
            DispatcherEvent::HeartbeatAcknowledged { renewed: vec![], lost: lost.into_iter().collect() }
        }
        8 if beat_asked => DispatcherEvent::HeartbeatFailed,
        9..=11 => {
            let ends = [RunEnd::Finished, RunEnd::Signalled(9), RunEnd::Drained, RunEnd::WorkerFault];
            of(&runs).map_or(DispatcherEvent::Tick, |key| {
                DispatcherEvent::RunEnded(key, ends[usize::from(how)], RunMilestone::Working)
            })
        }
        12..=13 => {
            let waiting: Vec<LeaseKey> =
                state.releases.iter().filter(|(_, r)| r.retry_at.is_none()).map(|(key, _)| *key).collect();
            match (of(&waiting), how) {
                (Some(key), 0) => DispatcherEvent::ReleaseFailed(key, CallFailure::Retryable),
                (Some(key), 1) => DispatcherEvent::ReleaseFailed(key, CallFailure::Final),
                (Some(key), _) => DispatcherEvent::Released(key),
                (None, _) => DispatcherEvent::Tick,
            }
        }
        14 if who == 0 => DispatcherEvent::TerminationSignal,
        _ => DispatcherEvent::Tick,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold(happenings in prop::collection::vec(arbitrary_happening(), 1..120)) {
        let mut story = DispatcherScenario::with_slots(3);
        let (mut killed_as_lost, mut alive) = (BTreeSet::new(), BTreeSet::new());
        for (nth_epoch, (what, who, how, later_ms)) in happenings.into_iter().enumerate() {
            // The dispatcher wakes at every requested instant; later events come after a tick.
            let mut said = story.wait_and_tick(Duration::from_millis(later_ms));
            let event = event_from_happening(&story.state, (what, who, how), nth_epoch as u64);
            let ended = match &event {
                DispatcherEvent::RunEnded(key, ..) | DispatcherEvent::RunFaulted(key, _) => Some(*key),
                _ => None,
            };
            let before = said.len();
            said.extend(story.handle_event(event));
            for (nth, command) in said.into_iter().enumerate() {
                if nth == before && let Some(key) = ended {
                    alive.remove(&key);
                }
                prop_assert!(!matches!(command, DispatcherCommand::Finish) || alive.is_empty());
                match command {
                    DispatcherCommand::Lease { attempt: wanted, .. } => {
                        prop_assert!(wanted.max >= 1 && wanted.max as usize + alive.len() <= 3);
                    }
                    DispatcherCommand::Start(lease) => {
                        prop_assert!(story.state.phase == WorkerPhase::Leasing);
                        prop_assert!(alive.insert(LeaseKey::from_lease(&lease)) && alive.len() <= 3);
                        killed_as_lost.remove(&LeaseKey::from_lease(&lease));
                    }
                    DispatcherCommand::Kill(key, why) => {
                        prop_assert!(alive.contains(&key));
                        if why != RunKillReason::Drain {
                            killed_as_lost.insert(key);
                        }
                    }
                    DispatcherCommand::Release(key, _) => {
                        prop_assert!(!alive.contains(&key) && !killed_as_lost.contains(&key));
                    }
                    DispatcherCommand::Terminate(key) => prop_assert!(alive.contains(&key)),
                    DispatcherCommand::Heartbeat { leases: held, .. } => {
                        prop_assert!(!held.is_empty());
                        let tasks: BTreeSet<_> = held.iter().map(|held| held.task).collect();
                        prop_assert_eq!(tasks.len(), held.len(), "a task twice");
                        for held in held {
                            let key = LeaseKey { task: held.task, epoch: held.epoch };
                            prop_assert!(alive.contains(&key) && !killed_as_lost.contains(&key));
                        }
                    }
                    DispatcherCommand::Finish => {
                        prop_assert!(story.state.releases.is_empty());
                        return Ok(());
                    }
                }
            }
            if let Some(key) = ended {
                alive.remove(&key);
            }
            for run in story.state.runs.values() {
                let works = matches!(run.stage, ProcessStage::Running | ProcessStage::Draining);
                prop_assert!(!works || run.lease_valid_until > story.now, "works on without a lease");
            }
        }
    }
}
