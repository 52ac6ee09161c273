//! The dispatcher's rules: maps an event to commands. Pure: no clock, no calls, no logging.
//!
//! Invariants, each with a test here: leases are requested only for free slots; a lease is released at most once, and
//! never after it was lost; a run is killed at the instant from which another worker may have its task; after
//! `Finish` nothing more is requested.

use std::time::{Duration, Instant};

use docket_schema::{
    api::{
        CAPACITY_DRAINING, FaultKind, FaultScope, LONG_POLL_MS_MAX, Lease, LeaseLostReason, ReleaseReason,
        WorkerCapacity, WorkerFault,
    },
    ids::TaskId,
    task::Flow,
};

use super::{
    lease_request::{LEASE_WAIT, request_work},
    quarantine::FaultReporter,
    state::{
        CallFailure, DispatcherCommand, DispatcherEvent, DispatcherState, LeaseKey, LeasedRun,
        PendingRelease, PollState, ProcessStage, RunEnd, RunKillReason, RunMilestone, WorkerPhase,
    },
};

/// Time for a process whose task ended to exit by itself: only its own cleanup is left.
const EXIT_GRACE: Duration = Duration::from_secs(2);
/// Time for releases once the worker only shuts down.
const LAST_RELEASE_GRACE: Duration = Duration::from_secs(2);
/// First pause after a failed call; a restarting coordinator is back soon.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause: a returning coordinator must be noticed well within a lease.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// The current instant, and a random number for jitter drawn by the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct NowWithJitter {
    pub(super) now: Instant,
    pub(super) jitter: u64,
}

impl NowWithJitter {
    fn backoff_until(self, failures: u32, longest: Duration) -> Instant {
        self.jittered_deadline(
            BACKOFF_MIN.saturating_mul(1 << failures.min(10)).min(BACKOFF_MAX).min(longest),
        )
    }

    /// Returns the instant after `full`, minus up to half of it at random.
    pub(super) fn jittered_deadline(self, full: Duration) -> Instant {
        let half_us = full.as_micros() as u64 / 2;
        self.now + Duration::from_micros(half_us + self.jitter % (half_us + 1))
    }
}

/// Handles an event and returns the commands to execute, in order.
pub(super) fn handle_event(
    state: &mut DispatcherState,
    at: NowWithJitter,
    event: DispatcherEvent,
) -> Vec<DispatcherCommand> {
    let mut out = Vec::new();
    match event {
        DispatcherEvent::Started | DispatcherEvent::Tick => {}
        DispatcherEvent::Leased(leases, held) => handle_leases(state, at, leases, held, &mut out),
        DispatcherEvent::LeaseFailed(failure) => handle_lease_failure(state, at, failure, &mut out),
        DispatcherEvent::HeartbeatAcknowledged { renewed, lost } => {
            handle_heartbeat_reply(state, at, &renewed, &lost, &mut out)
        }
        DispatcherEvent::HeartbeatFailed => {
            if let PollState::InFlight(listed, _) =
                std::mem::replace(&mut state.heartbeat_poll, PollState::Idle)
            {
                let shortest = state.runs.values().map(|run| run.heartbeat_interval).min();
                let until = at.backoff_until(state.heartbeat_failures, shortest.unwrap_or(BACKOFF_MAX));
                state.heartbeat_poll = PollState::BackingOff(listed, until);
                state.heartbeat_failures = state.heartbeat_failures.saturating_add(1);
            }
        }
        DispatcherEvent::RunEnded(key, end, reach) => {
            handle_run_end(state, at, key, (end, reach, None), &mut out)
        }
        DispatcherEvent::RunFaulted(key, fault) => {
            handle_run_end(
                state,
                at,
                key,
                (RunEnd::WorkerFault, RunMilestone::Starting, Some(fault)),
                &mut out,
            );
        }
        DispatcherEvent::Released(key) | DispatcherEvent::ReleaseFailed(key, CallFailure::Final) => {
            state.releases.remove(&key);
        }
        DispatcherEvent::ReleaseFailed(key, CallFailure::Retryable) => {
            if let Some(release) = state.releases.get_mut(&key) {
                release.retry_at = Some(at.backoff_until(release.attempts, BACKOFF_MAX));
                release.attempts = release.attempts.saturating_add(1);
            }
        }
        DispatcherEvent::TerminationSignal => handle_signal(state, at, &mut out),
    }
    handle_timeouts(state, at, &mut out);
    request_work(state, at, &mut out);
    renew_leases(state, at, &mut out);
    if state.phase != WorkerPhase::Leasing
        && state.phase != WorkerPhase::Finished
        && state.runs.is_empty()
        && state.releases.is_empty()
        && matches!(state.lease_poll, PollState::Idle)
    {
        state.phase = WorkerPhase::Finished;
        out.push(DispatcherCommand::Finish);
    }
    out
}

/// Returns the next instant at which time alone changes something.
pub(super) fn next_wake(state: &DispatcherState) -> Option<Instant> {
    let mut wakes: Vec<Instant> = Vec::new();
    for run in state.runs.values() {
        match run.stage {
            ProcessStage::Running | ProcessStage::Draining => wakes.push(run.lease_valid_until),
            ProcessStage::Exiting(at) => wakes.push(at),
            ProcessStage::Killed(_) => {}
        }
    }
    wakes.extend(
        state.releases.values().map(|release| {
            release.retry_at.map_or(release.expires_at, |again| again.min(release.expires_at))
        }),
    );
    if state.phase == WorkerPhase::Leasing {
        wakes.extend(state.quarantine.next_wake());
    }
    match state.lease_poll {
        PollState::BackingOff(_, until) => wakes.push(until),
        PollState::Idle if state.phase == WorkerPhase::Leasing && free_slots(state) > 0 => {
            wakes.extend(state.no_request_before)
        }
        PollState::Idle | PollState::InFlight(..) => {}
    }
    match &state.heartbeat_poll {
        PollState::BackingOff(_, until) => wakes.push(*until),
        PollState::InFlight(listed, since) => wakes.extend(heartbeat_restart_at(state, listed, *since)),
        PollState::Idle => {}
    }
    match state.phase {
        WorkerPhase::Draining(until) => wakes.push(until),
        WorkerPhase::Leasing | WorkerPhase::Killing | WorkerPhase::Finished => {}
    }
    wakes.into_iter().min()
}

fn handle_leases(
    state: &mut DispatcherState,
    at: NowWithJitter,
    leases: Vec<Lease>,
    held: Duration,
    out: &mut Vec<DispatcherCommand>,
) {
    let PollState::InFlight(_, since) = std::mem::replace(&mut state.lease_poll, PollState::Idle) else {
        return;
    };
    if leases.is_empty() {
        // A coordinator that is shutting down answers at once: without a pause the worker would retry in a busy loop.
        if at.now.saturating_duration_since(since) < LEASE_WAIT / 2 {
            state.no_request_before = Some(at.backoff_until(state.lease_failures, BACKOFF_MAX));
            state.lease_failures = state.lease_failures.saturating_add(1);
        }
        return;
    }
    state.lease_failures = 0;
    // The coordinator starts leases after receiving the request plus the time it says it waited for work; the time
    // its reply took is unknown and not counted.
    let begun = since.checked_add(held).map_or(at.now, |begun| begun.min(at.now));
    for lease in leases {
        let key = LeaseKey::from_lease(&lease);
        if state.runs.contains_key(&key) || state.releases.contains_key(&key) {
            continue;
        }
        kill_older_epochs(state, key, out);
        let lease_time = Duration::from_millis(lease.lease_ms);
        if state.phase != WorkerPhase::Leasing || free_slots(state) == 0 {
            state.tally.drained += 1;
            release_lease(state, at, key, ReleaseReason::Drained, begun + lease_time, out);
            continue;
        }
        let flow = Flow::from_spec(&lease.spec);
        if state.quarantine.fault_for(&flow, key.task).is_some() {
            // Granted before the coordinator learned of the fault. It was not tried, so nothing is counted.
            state.tally.faulted += 1;
            release_lease(state, at, key, ReleaseReason::Drained, begun + lease_time, out);
            continue;
        }
        state.quarantine.begin_trial(key, &flow, at.now);
        let heartbeat = Duration::from_millis(lease.heartbeat_ms.clamp(1, LONG_POLL_MS_MAX));
        let (vouched_until, stage) = (begun + lease_time, ProcessStage::Running);
        let (base, begun) = (lease.spec.base.tree, at.now);
        let run = LeasedRun {
            lease_time,
            heartbeat_interval: heartbeat,
            lease_valid_until: vouched_until,
            stage,
            flow,
            base_tree: base,
            started_at: begun,
        };
        state.runs.insert(key, run);
        state.tally.started += 1;
        out.push(DispatcherCommand::Start(Box::new(lease)));
    }
}

/// Kills runs of a task that comes back under a higher epoch: the older lease is lost, although no heartbeat has said
/// so yet. After this, at most one epoch of a task is renewed, so a reply, which names tasks only, is never applied
/// to the wrong epoch.
fn kill_older_epochs(state: &mut DispatcherState, new: LeaseKey, out: &mut Vec<DispatcherCommand>) {
    for (key, run) in &mut state.runs {
        if key.task != new.task {
            continue;
        }
        match run.stage {
            ProcessStage::Killed(_) => {}
            ProcessStage::Running | ProcessStage::Draining | ProcessStage::Exiting(_) => {
                run.stage = ProcessStage::Killed(RunKillReason::Lost);
                out.push(DispatcherCommand::Kill(*key, RunKillReason::Lost));
            }
        }
    }
}

fn handle_lease_failure(
    state: &mut DispatcherState,
    at: NowWithJitter,
    failure: CallFailure,
    out: &mut Vec<DispatcherCommand>,
) {
    let PollState::InFlight(wanted, _) = std::mem::replace(&mut state.lease_poll, PollState::Idle) else {
        return;
    };
    match failure {
        CallFailure::Retryable => {
            state.lease_poll =
                PollState::BackingOff(wanted, at.backoff_until(state.lease_failures, BACKOFF_MAX));
            state.lease_failures = state.lease_failures.saturating_add(1);
        }
        // A rejected token stays rejected; runs have their own tokens and may finish their turn.
        CallFailure::Final if state.phase == WorkerPhase::Leasing => handle_signal(state, at, out),
        CallFailure::Final => {}
    }
}

fn handle_heartbeat_reply(
    state: &mut DispatcherState,
    at: NowWithJitter,
    renewed: &[TaskId],
    lost: &[(TaskId, LeaseLostReason)],
    out: &mut Vec<DispatcherCommand>,
) {
    let PollState::InFlight(listed, since) = std::mem::replace(&mut state.heartbeat_poll, PollState::Idle)
    else {
        return;
    };
    state.heartbeat_failures = 0;
    let mut pause = Duration::MAX;
    for key in &listed {
        let Some(run) = state.runs.get_mut(key) else { continue };
        pause = pause.min(run.heartbeat_interval / 4);
        if let Some((_, why)) = lost.iter().find(|(task, _)| *task == key.task) {
            handle_lost_lease(run, at, *why, *key, out);
        } else if renewed.contains(&key.task) {
            // The coordinator renewed the lease at some instant after the request was sent, so count from there.
            run.lease_valid_until = run.lease_valid_until.max(since + run.lease_time);
        }
    }
    // Prevents a busy loop when replies come at once.
    let next = since.checked_add(pause).unwrap_or(at.now);
    if next > at.now {
        state.heartbeat_poll = PollState::BackingOff(listed, next);
    }
}

fn handle_lost_lease(
    run: &mut LeasedRun,
    at: NowWithJitter,
    why: LeaseLostReason,
    key: LeaseKey,
    out: &mut Vec<DispatcherCommand>,
) {
    match (run.stage, why) {
        (ProcessStage::Killed(_) | ProcessStage::Exiting(_), _) => {}
        (ProcessStage::Running | ProcessStage::Draining, LeaseLostReason::Ended) => {
            run.stage = ProcessStage::Exiting(at.now + EXIT_GRACE);
        }
        (
            ProcessStage::Running | ProcessStage::Draining,
            LeaseLostReason::Expired
            | LeaseLostReason::Fenced
            | LeaseLostReason::Cancelled
            | LeaseLostReason::Unknown,
        ) => {
            run.stage = ProcessStage::Killed(RunKillReason::Lost);
            out.push(DispatcherCommand::Kill(key, RunKillReason::Lost));
        }
    }
}

/// How a lease ends once its process has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseOutcome {
    /// The log is complete.
    Recorded,
    /// The lease is no longer ours to release.
    Lost,
    /// Released without blame.
    Release,
    /// Released with the fault of this worker.
    ReleaseAsFaulted,
    /// Released as crashed.
    ReleaseAsCrashed(String),
}

/// Returns how a lease ends, by how the process ended and what it was doing.
pub(super) fn lease_outcome(stage: ProcessStage, end: RunEnd) -> LeaseOutcome {
    match (stage, end) {
        (
            ProcessStage::Killed(RunKillReason::Lost | RunKillReason::Deadline) | ProcessStage::Exiting(_),
            _,
        ) => match end {
            RunEnd::Finished => LeaseOutcome::Recorded,
            RunEnd::Drained
            | RunEnd::LeaseLost
            | RunEnd::Exited(_)
            | RunEnd::Signalled(_)
            | RunEnd::Stalled(_)
            | RunEnd::WorkerFault => LeaseOutcome::Lost,
        },
        (_, RunEnd::Finished) => LeaseOutcome::Recorded,
        (_, RunEnd::LeaseLost) => LeaseOutcome::Lost,
        (_, RunEnd::Drained) => LeaseOutcome::Release,
        (_, RunEnd::WorkerFault) => LeaseOutcome::ReleaseAsFaulted,
        // Our own kill says nothing about the task.
        (
            ProcessStage::Killed(RunKillReason::Drain),
            RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_),
        ) => LeaseOutcome::Release,
        // A process that is terminated before it has a signal handler dies of the signal.
        (ProcessStage::Draining, RunEnd::Signalled(SIGTERM)) => LeaseOutcome::Release,
        (
            ProcessStage::Running | ProcessStage::Draining,
            RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_),
        ) => LeaseOutcome::ReleaseAsCrashed(end.to_string()),
    }
}

/// Fixed by POSIX for all systems docket runs on.
const SIGTERM: i32 = 15;

fn handle_run_end(
    state: &mut DispatcherState,
    at: NowWithJitter,
    key: LeaseKey,
    (end, reach, fault): (RunEnd, RunMilestone, Option<WorkerFault>),
    out: &mut Vec<DispatcherCommand>,
) {
    let Some(run) = state.runs.remove(&key) else { return };
    let is_killed = matches!(run.stage, ProcessStage::Killed(_));
    state.tally.killed += u64::from(is_killed);
    let mut message = String::new();
    let reach = match end {
        RunEnd::WorkerFault => {
            let fault = fault_for_task(key, &run.flow, fault);
            message.clone_from(&fault.message);
            state.quarantine.report_fault(fault, FaultReporter { task: key.task, base: run.base_tree }, at);
            RunMilestone::Starting
        }
        // A process that was killed or gave up its turn may have been about to meet a fault.
        RunEnd::Drained | RunEnd::LeaseLost => RunMilestone::Starting,
        RunEnd::Finished | RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_) if is_killed => {
            RunMilestone::Starting
        }
        RunEnd::Finished | RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_) => reach,
    };
    state.quarantine.end_trial(key, &run, reach, at.now);
    match lease_outcome(run.stage, end) {
        LeaseOutcome::Recorded => state.tally.finished += 1,
        LeaseOutcome::Lost => state.tally.lost += 1,
        LeaseOutcome::Release => {
            state.tally.drained += 1;
            release_lease(state, at, key, ReleaseReason::Drained, run.lease_valid_until, out);
        }
        LeaseOutcome::ReleaseAsFaulted => {
            state.tally.faulted += 1;
            release_lease(state, at, key, ReleaseReason::WorkerFault(message), run.lease_valid_until, out);
        }
        LeaseOutcome::ReleaseAsCrashed(how) => {
            state.tally.crashed += 1;
            release_lease(state, at, key, ReleaseReason::Crashed(how), run.lease_valid_until, out);
        }
    }
}

/// Returns the fault that a run process met. A fault that does not match its own task, or could not be read, is
/// narrowed to this task: otherwise the task would be leased again at once.
fn fault_for_task(key: LeaseKey, flow: &Flow, reported: Option<WorkerFault>) -> WorkerFault {
    let alone = FaultScope::Task(key.task);
    match reported {
        Some(fault) if fault.scope.covers_task(flow, key.task) => fault,
        Some(fault) => WorkerFault { scope: alone, ..fault },
        None => {
            let message =
                "a run process met a fault of this worker and could not report it; see the worker's log";
            WorkerFault::new(FaultKind::Host, alone, message)
        }
    }
}

fn release_lease(
    state: &mut DispatcherState,
    at: NowWithJitter,
    key: LeaseKey,
    why: ReleaseReason,
    until: Instant,
    out: &mut Vec<DispatcherCommand>,
) {
    let until = match state.phase {
        WorkerPhase::Killing | WorkerPhase::Finished => until.min(at.now + LAST_RELEASE_GRACE),
        WorkerPhase::Leasing | WorkerPhase::Draining(_) => until,
    };
    state
        .releases
        .insert(key, PendingRelease { reason: why.clone(), expires_at: until, retry_at: None, attempts: 0 });
    out.push(DispatcherCommand::Release(key, why));
}

fn handle_signal(state: &mut DispatcherState, at: NowWithJitter, out: &mut Vec<DispatcherCommand>) {
    match state.phase {
        WorkerPhase::Leasing => {
            state.phase = WorkerPhase::Draining(at.now + state.grace);
            for (key, run) in &mut state.runs {
                if run.stage == ProcessStage::Running {
                    run.stage = ProcessStage::Draining;
                    out.push(DispatcherCommand::Terminate(*key));
                }
            }
            match state.lease_poll {
                // The request in flight may have been granted already. Repeating the same number without waiting
                // shows that, and any lease it returns is released at once.
                PollState::InFlight(wanted, _) => {
                    state.lease_poll = PollState::InFlight(wanted, at.now);
                    out.push(DispatcherCommand::Lease { attempt: wanted, wait: Duration::ZERO });
                }
                PollState::BackingOff(..) | PollState::Idle => state.lease_poll = PollState::Idle,
            }
        }
        WorkerPhase::Draining(_) => kill_all(state, at, out),
        WorkerPhase::Killing | WorkerPhase::Finished => {}
    }
}

fn kill_all(state: &mut DispatcherState, at: NowWithJitter, out: &mut Vec<DispatcherCommand>) {
    state.phase = WorkerPhase::Killing;
    for (key, run) in &mut state.runs {
        match run.stage {
            ProcessStage::Killed(_) => {}
            ProcessStage::Running | ProcessStage::Draining => {
                run.stage = ProcessStage::Killed(RunKillReason::Drain);
                out.push(DispatcherCommand::Kill(*key, RunKillReason::Drain));
            }
            ProcessStage::Exiting(_) => {
                run.stage = ProcessStage::Killed(RunKillReason::Lost);
                out.push(DispatcherCommand::Kill(*key, RunKillReason::Lost));
            }
        }
    }
    // Calls get no more time either; an unreleased lease expires by itself.
    for release in state.releases.values_mut() {
        release.expires_at = release.expires_at.min(at.now + LAST_RELEASE_GRACE);
    }
    state.lease_poll = PollState::Idle;
}

fn handle_timeouts(state: &mut DispatcherState, at: NowWithJitter, out: &mut Vec<DispatcherCommand>) {
    state.quarantine.advance_time(at.now);
    if let WorkerPhase::Draining(until) = state.phase
        && until <= at.now
    {
        kill_all(state, at, out);
    }
    for (key, run) in &mut state.runs {
        let why = match run.stage {
            ProcessStage::Running | ProcessStage::Draining if run.lease_valid_until <= at.now => {
                RunKillReason::Deadline
            }
            ProcessStage::Exiting(until) if until <= at.now => RunKillReason::Lost,
            ProcessStage::Running
            | ProcessStage::Draining
            | ProcessStage::Exiting(_)
            | ProcessStage::Killed(_) => continue,
        };
        run.stage = ProcessStage::Killed(why);
        out.push(DispatcherCommand::Kill(*key, why));
    }
    state.releases.retain(|_, release| release.expires_at > at.now);
    for (key, release) in &mut state.releases {
        if release.retry_at.is_some_and(|again| again <= at.now) {
            release.retry_at = None;
            out.push(DispatcherCommand::Release(*key, release.reason.clone()));
        }
    }
}

/// Returns the runs whose leases are to be renewed: those that are working.
fn leases_to_renew(state: &DispatcherState) -> Vec<LeaseKey> {
    let works = |run: &LeasedRun| match run.stage {
        ProcessStage::Running | ProcessStage::Draining => true,
        ProcessStage::Exiting(_) | ProcessStage::Killed(_) => false,
    };
    state.runs.iter().filter(|(_, run)| works(run)).map(|(key, _)| *key).collect()
}

/// Returns when a heartbeat in flight is replaced by one that lists a lease it lacks.
fn heartbeat_restart_at(state: &DispatcherState, listed: &[LeaseKey], since: Instant) -> Option<Instant> {
    let missing = leases_to_renew(state).into_iter().filter(|key| !listed.contains(key));
    missing.filter_map(|key| state.runs.get(&key)).map(|run| since + run.heartbeat_interval / 4).min()
}

fn renew_leases(state: &mut DispatcherState, at: NowWithJitter, out: &mut Vec<DispatcherCommand>) {
    let keys = leases_to_renew(state);
    // A heartbeat that replaces one in flight is not delayed: if it could be replaced in turn, no renewal would ever
    // be acknowledged.
    let (due, waits) = match &state.heartbeat_poll {
        PollState::Idle => (true, true),
        PollState::BackingOff(_, until) => (*until <= at.now, true),
        PollState::InFlight(listed, since) => {
            (heartbeat_restart_at(state, listed, *since).is_some_and(|again| again <= at.now), false)
        }
    };
    if keys.is_empty() {
        if !matches!(state.heartbeat_poll, PollState::InFlight(..)) {
            state.heartbeat_poll = PollState::Idle;
        }
        return;
    }
    if due {
        let shortest =
            keys.iter().filter_map(|key| state.runs.get(key)).map(|run| run.heartbeat_interval).min();
        let wait = if waits { shortest.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        out.push(DispatcherCommand::Heartbeat {
            leases: keys.iter().map(|key| key.to_held()).collect(),
            wait,
        });
        state.heartbeat_poll = PollState::InFlight(keys, at.now);
    }
}

/// Returns the capacity that a worker reports.
pub(super) fn worker_room(state: &DispatcherState) -> WorkerCapacity {
    let full = match state.phase {
        WorkerPhase::Draining(_) | WorkerPhase::Killing | WorkerPhase::Finished => {
            Some(CAPACITY_DRAINING.to_owned())
        }
        WorkerPhase::Leasing if free_slots(state) == 0 => Some(WorkerCapacity::describe_full(state.slots)),
        WorkerPhase::Leasing => None,
    };
    WorkerCapacity { slots: state.slots, full }
}

pub(super) fn free_slots(state: &DispatcherState) -> u32 {
    state.slots.saturating_sub(u32::try_from(state.runs.len()).unwrap_or(u32::MAX))
}
