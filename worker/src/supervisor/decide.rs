//! The dispatcher's rules: what follows from what happened. Pure: no clock, no calls, no logging.
//!
//! Invariants, each with a test here: no lease is asked for beyond the free slots; a lease is given
//! back at most once, and never after it was lost; a run is killed at the instant from which another
//! worker may have its task; after `Finish` nothing more is asked for.

use std::time::{Duration, Instant};

use docket_schema::{
    ids::TaskId,
    task::Flow,
    wire::{
        FaultKind, FaultScope, LONG_POLL_MS_MAX, Lease, LostWhy, ROOM_DRAINS, ReleaseReason, Room,
        WorkerFault,
    },
};

use super::{
    ask::{LEASE_WAIT, ask_for_work},
    quarantine::Reporter,
    state::{
        Command, Event, Failure, Key, KilledFor, Phase, Poll, Reach, Release, Run, RunEnd, Stage, State,
    },
};

/// Time for a process whose task ended to exit by itself: it has only its own cleaning left.
const LEAVE_GRACE: Duration = Duration::from_secs(2);
/// Time for releases once the worker only ends what is left.
const LAST_RELEASE_GRACE: Duration = Duration::from_secs(2);
/// First pause after a call that failed; a coordinator that only restarts is back soon.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause: its return is to be noticed well within a lease.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// When, and the random number for jitter: drawn by the shell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) jitter: u64,
}

impl Moment {
    fn pause(self, failures: u32, longest: Duration) -> Instant {
        self.about(PAUSE_MIN.saturating_mul(1 << failures.min(10)).min(PAUSE_MAX).min(longest))
    }

    /// After `full`, less up to half of it by chance.
    pub(super) fn about(self, full: Duration) -> Instant {
        let half_us = full.as_micros() as u64 / 2;
        self.now + Duration::from_micros(half_us + self.jitter % (half_us + 1))
    }
}

/// Takes in what happened and says what is to be done, in order.
pub(super) fn on(state: &mut State, at: Moment, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    match event {
        Event::Begun | Event::Tick => {}
        Event::Leased(leases, held) => leased(state, at, leases, held, &mut out),
        Event::LeaseFailed(failure) => lease_failed(state, at, failure, &mut out),
        Event::Beaten { renewed, lost } => beaten(state, at, &renewed, &lost, &mut out),
        Event::BeatFailed => {
            if let Poll::Asked(listed, _) = std::mem::replace(&mut state.beat, Poll::Idle) {
                let shortest = state.runs.values().map(|run| run.heartbeat).min();
                let until = at.pause(state.beat_failures, shortest.unwrap_or(PAUSE_MAX));
                state.beat = Poll::Pausing(listed, until);
                state.beat_failures = state.beat_failures.saturating_add(1);
            }
        }
        Event::RunEnded(key, end, reach) => run_ended(state, at, key, (end, reach, None), &mut out),
        Event::RunFaulted(key, fault) => {
            run_ended(state, at, key, (RunEnd::WorkerFault, Reach::Start, Some(fault)), &mut out);
        }
        Event::Released(key) | Event::ReleaseFailed(key, Failure::Final) => {
            state.releases.remove(&key);
        }
        Event::ReleaseFailed(key, Failure::Away) => {
            if let Some(release) = state.releases.get_mut(&key) {
                release.again_at = Some(at.pause(release.attempts, PAUSE_MAX));
                release.attempts = release.attempts.saturating_add(1);
            }
        }
        Event::Signal => signal(state, at, &mut out),
    }
    what_time_brings(state, at, &mut out);
    ask_for_work(state, at, &mut out);
    renew(state, at, &mut out);
    if state.phase != Phase::Leasing
        && state.phase != Phase::Over
        && state.runs.is_empty()
        && state.releases.is_empty()
        && matches!(state.lease, Poll::Idle)
    {
        state.phase = Phase::Over;
        out.push(Command::Finish);
    }
    out
}

/// The next instant at which time alone changes something.
pub(super) fn next_wake(state: &State) -> Option<Instant> {
    let mut wakes: Vec<Instant> = Vec::new();
    for run in state.runs.values() {
        match run.stage {
            Stage::Running | Stage::Draining => wakes.push(run.vouched_until),
            Stage::Leaving(at) => wakes.push(at),
            Stage::Killed(_) => {}
        }
    }
    wakes.extend(
        state
            .releases
            .values()
            .map(|release| release.again_at.map_or(release.until, |again| again.min(release.until))),
    );
    if state.phase == Phase::Leasing {
        wakes.extend(state.quarantine.next_wake());
    }
    match state.lease {
        Poll::Pausing(_, until) => wakes.push(until),
        Poll::Idle if state.phase == Phase::Leasing && free(state) > 0 => wakes.extend(state.no_lease_before),
        Poll::Idle | Poll::Asked(..) => {}
    }
    match &state.beat {
        Poll::Pausing(_, until) => wakes.push(*until),
        Poll::Asked(listed, since) => wakes.extend(restart_at(state, listed, *since)),
        Poll::Idle => {}
    }
    match state.phase {
        Phase::Draining(until) => wakes.push(until),
        Phase::Leasing | Phase::Killing | Phase::Over => {}
    }
    wakes.into_iter().min()
}

fn leased(state: &mut State, at: Moment, leases: Vec<Lease>, held: Duration, out: &mut Vec<Command>) {
    let Poll::Asked(_, since) = std::mem::replace(&mut state.lease, Poll::Idle) else { return };
    if leases.is_empty() {
        // A coordinator that shuts down answers at once: without a pause it would be asked in a spin.
        if at.now.saturating_duration_since(since) < LEASE_WAIT / 2 {
            state.no_lease_before = Some(at.pause(state.lease_failures, PAUSE_MAX));
            state.lease_failures = state.lease_failures.saturating_add(1);
        }
        return;
    }
    state.lease_failures = 0;
    // The coordinator counts from an instant after it was asked, by as long as it says that it waited for work;
    // how long its answer took to come is nothing to build on.
    let begun = since.checked_add(held).map_or(at.now, |begun| begun.min(at.now));
    for lease in leases {
        let key = Key::of(&lease);
        if state.runs.contains_key(&key) || state.releases.contains_key(&key) {
            continue;
        }
        drop_older(state, key, out);
        let lease_time = Duration::from_millis(lease.lease_ms);
        if state.phase != Phase::Leasing || free(state) == 0 {
            state.tally.drained += 1;
            release(state, at, key, ReleaseReason::Drained, begun + lease_time, out);
            continue;
        }
        let flow = Flow::of(&lease.spec);
        if state.quarantine.fault_for(&flow, key.task).is_some() {
            // Granted before the coordinator heard of the fault. It was not tried, so nothing is counted.
            state.tally.faulted += 1;
            release(state, at, key, ReleaseReason::Drained, begun + lease_time, out);
            continue;
        }
        state.quarantine.begin_trial(key, &flow, at.now);
        let heartbeat = Duration::from_millis(lease.heartbeat_ms.clamp(1, LONG_POLL_MS_MAX));
        let (vouched_until, stage) = (begun + lease_time, Stage::Running);
        let (base, begun) = (lease.spec.base.tree, at.now);
        let run = Run { lease_time, heartbeat, vouched_until, stage, flow, base, begun };
        state.runs.insert(key, run);
        state.tally.started += 1;
        out.push(Command::Start(Box::new(lease)));
    }
}

/// A task that comes back under a higher epoch was lost under the older one, though no heartbeat
/// has said so yet. After this at most one epoch of a task is renewed, so that an answer, which
/// names tasks only, is never taken for the other one's.
fn drop_older(state: &mut State, new: Key, out: &mut Vec<Command>) {
    for (key, run) in &mut state.runs {
        if key.task != new.task {
            continue;
        }
        match run.stage {
            Stage::Killed(_) => {}
            Stage::Running | Stage::Draining | Stage::Leaving(_) => {
                run.stage = Stage::Killed(KilledFor::Lost);
                out.push(Command::Kill(*key, KilledFor::Lost));
            }
        }
    }
}

fn lease_failed(state: &mut State, at: Moment, failure: Failure, out: &mut Vec<Command>) {
    let Poll::Asked(wanted, _) = std::mem::replace(&mut state.lease, Poll::Idle) else { return };
    match failure {
        Failure::Away => {
            state.lease = Poll::Pausing(wanted, at.pause(state.lease_failures, PAUSE_MAX));
            state.lease_failures = state.lease_failures.saturating_add(1);
        }
        // A token that is refused stays refused; runs have tokens of their own and may end their turn.
        Failure::Final if state.phase == Phase::Leasing => signal(state, at, out),
        Failure::Final => {}
    }
}

fn beaten(
    state: &mut State,
    at: Moment,
    renewed: &[TaskId],
    lost: &[(TaskId, LostWhy)],
    out: &mut Vec<Command>,
) {
    let Poll::Asked(listed, since) = std::mem::replace(&mut state.beat, Poll::Idle) else { return };
    state.beat_failures = 0;
    let mut pause = Duration::MAX;
    for key in &listed {
        let Some(run) = state.runs.get_mut(key) else { continue };
        pause = pause.min(run.heartbeat / 4);
        if let Some((_, why)) = lost.iter().find(|(task, _)| *task == key.task) {
            lose(run, at, *why, *key, out);
        } else if renewed.contains(&key.task) {
            // Renewed at some instant after it was asked for: from there on the coordinator counts.
            run.vouched_until = run.vouched_until.max(since + run.lease_time);
        }
    }
    // Answers that come at once must not make a spin.
    let next = since.checked_add(pause).unwrap_or(at.now);
    if next > at.now {
        state.beat = Poll::Pausing(listed, next);
    }
}

fn lose(run: &mut Run, at: Moment, why: LostWhy, key: Key, out: &mut Vec<Command>) {
    match (run.stage, why) {
        (Stage::Killed(_) | Stage::Leaving(_), _) => {}
        (Stage::Running | Stage::Draining, LostWhy::Ended) => {
            run.stage = Stage::Leaving(at.now + LEAVE_GRACE);
        }
        (
            Stage::Running | Stage::Draining,
            LostWhy::Expired | LostWhy::Fenced | LostWhy::Cancelled | LostWhy::Unknown,
        ) => {
            run.stage = Stage::Killed(KilledFor::Lost);
            out.push(Command::Kill(key, KilledFor::Lost));
        }
    }
}

/// What becomes of a lease whose process has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The log says all.
    Nothing,
    /// The lease is not ours to give back.
    Lost,
    /// Given back without blame.
    GiveBack,
    /// Given back with what is wrong with this worker.
    Fault,
    /// Given back as died.
    Crashed(String),
}

/// The decision table of ends: how it ended, by what it was doing.
pub(super) fn outcome(stage: Stage, end: RunEnd) -> Outcome {
    match (stage, end) {
        (Stage::Killed(KilledFor::Lost | KilledFor::Deadline) | Stage::Leaving(_), _) => match end {
            RunEnd::Finished => Outcome::Nothing,
            RunEnd::Drained
            | RunEnd::LeaseLost
            | RunEnd::Exited(_)
            | RunEnd::Signalled(_)
            | RunEnd::Stalled(_)
            | RunEnd::WorkerFault => Outcome::Lost,
        },
        (_, RunEnd::Finished) => Outcome::Nothing,
        (_, RunEnd::LeaseLost) => Outcome::Lost,
        (_, RunEnd::Drained) => Outcome::GiveBack,
        (_, RunEnd::WorkerFault) => Outcome::Fault,
        // Our own kill says nothing about the task.
        (Stage::Killed(KilledFor::Drain), RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_)) => {
            Outcome::GiveBack
        }
        // A process that was asked to end and has no handler yet dies of the asking.
        (Stage::Draining, RunEnd::Signalled(SIGTERM)) => Outcome::GiveBack,
        (Stage::Running | Stage::Draining, RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_)) => {
            Outcome::Crashed(end.to_string())
        }
    }
}

/// Fixed by POSIX for all systems docket runs on.
const SIGTERM: i32 = 15;

fn run_ended(
    state: &mut State,
    at: Moment,
    key: Key,
    (end, reach, fault): (RunEnd, Reach, Option<WorkerFault>),
    out: &mut Vec<Command>,
) {
    let Some(run) = state.runs.remove(&key) else { return };
    let is_killed = matches!(run.stage, Stage::Killed(_));
    state.tally.killed += u64::from(is_killed);
    let mut message = String::new();
    let reach = match end {
        RunEnd::WorkerFault => {
            let fault = fault_of(key, &run.flow, fault);
            message.clone_from(&fault.message);
            state.quarantine.report(fault, Reporter { task: key.task, base: run.base }, at);
            Reach::Start
        }
        // What was killed, or gave up its turn, may have been about to meet a fault.
        RunEnd::Drained | RunEnd::LeaseLost => Reach::Start,
        RunEnd::Finished | RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_) if is_killed => {
            Reach::Start
        }
        RunEnd::Finished | RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_) => reach,
    };
    state.quarantine.end_trial(key, &run, reach, at.now);
    match outcome(run.stage, end) {
        Outcome::Nothing => state.tally.finished += 1,
        Outcome::Lost => state.tally.lost += 1,
        Outcome::GiveBack => {
            state.tally.drained += 1;
            release(state, at, key, ReleaseReason::Drained, run.vouched_until, out);
        }
        Outcome::Fault => {
            state.tally.faulted += 1;
            release(state, at, key, ReleaseReason::WorkerFault(message), run.vouched_until, out);
        }
        Outcome::Crashed(how) => {
            state.tally.crashed += 1;
            release(state, at, key, ReleaseReason::Crashed(how), run.vouched_until, out);
        }
    }
}

/// The fault that a run process met. One that does not concern all tasks like this one, or could not be read, concerns
/// this task alone: otherwise the task would come back at once.
fn fault_of(key: Key, flow: &Flow, reported: Option<WorkerFault>) -> WorkerFault {
    let alone = FaultScope::Task(key.task);
    match reported {
        Some(fault) if fault.scope.covers_task(flow, key.task) => fault,
        Some(fault) => WorkerFault { scope: alone, ..fault },
        None => {
            let message =
                "a run process met a fault of this worker and could not report it; its log says which";
            WorkerFault::new(FaultKind::Host, alone, message)
        }
    }
}

fn release(
    state: &mut State,
    at: Moment,
    key: Key,
    why: ReleaseReason,
    until: Instant,
    out: &mut Vec<Command>,
) {
    let until = match state.phase {
        Phase::Killing | Phase::Over => until.min(at.now + LAST_RELEASE_GRACE),
        Phase::Leasing | Phase::Draining(_) => until,
    };
    state.releases.insert(key, Release { why: why.clone(), until, again_at: None, attempts: 0 });
    out.push(Command::Release(key, why));
}

fn signal(state: &mut State, at: Moment, out: &mut Vec<Command>) {
    match state.phase {
        Phase::Leasing => {
            state.phase = Phase::Draining(at.now + state.grace);
            for (key, run) in &mut state.runs {
                if run.stage == Stage::Running {
                    run.stage = Stage::Draining;
                    out.push(Command::Terminate(*key));
                }
            }
            match state.lease {
                // The request under way may have been granted already. The same number asked again
                // without waiting tells, and what it brings is given back at once.
                Poll::Asked(wanted, _) => {
                    state.lease = Poll::Asked(wanted, at.now);
                    out.push(Command::Lease { wanted, wait: Duration::ZERO });
                }
                Poll::Pausing(..) | Poll::Idle => state.lease = Poll::Idle,
            }
        }
        Phase::Draining(_) => kill_all(state, at, out),
        Phase::Killing | Phase::Over => {}
    }
}

fn kill_all(state: &mut State, at: Moment, out: &mut Vec<Command>) {
    state.phase = Phase::Killing;
    for (key, run) in &mut state.runs {
        match run.stage {
            Stage::Killed(_) => {}
            Stage::Running | Stage::Draining => {
                run.stage = Stage::Killed(KilledFor::Drain);
                out.push(Command::Kill(*key, KilledFor::Drain));
            }
            Stage::Leaving(_) => {
                run.stage = Stage::Killed(KilledFor::Lost);
                out.push(Command::Kill(*key, KilledFor::Lost));
            }
        }
    }
    // The grace is over for calls as well; an unanswered lease expires by itself.
    for release in state.releases.values_mut() {
        release.until = release.until.min(at.now + LAST_RELEASE_GRACE);
    }
    state.lease = Poll::Idle;
}

fn what_time_brings(state: &mut State, at: Moment, out: &mut Vec<Command>) {
    state.quarantine.pass(at.now);
    if let Phase::Draining(until) = state.phase
        && until <= at.now
    {
        kill_all(state, at, out);
    }
    for (key, run) in &mut state.runs {
        let why = match run.stage {
            Stage::Running | Stage::Draining if run.vouched_until <= at.now => KilledFor::Deadline,
            Stage::Leaving(until) if until <= at.now => KilledFor::Lost,
            Stage::Running | Stage::Draining | Stage::Leaving(_) | Stage::Killed(_) => continue,
        };
        run.stage = Stage::Killed(why);
        out.push(Command::Kill(*key, why));
    }
    state.releases.retain(|_, release| release.until > at.now);
    for (key, release) in &mut state.releases {
        if release.again_at.is_some_and(|again| again <= at.now) {
            release.again_at = None;
            out.push(Command::Release(*key, release.why.clone()));
        }
    }
}

/// Runs that are to be renewed: those that work.
fn vouched(state: &State) -> Vec<Key> {
    let works = |run: &Run| match run.stage {
        Stage::Running | Stage::Draining => true,
        Stage::Leaving(_) | Stage::Killed(_) => false,
    };
    state.runs.iter().filter(|(_, run)| works(run)).map(|(key, _)| *key).collect()
}

/// When a heartbeat under way is given up for one that lists a lease it does not.
fn restart_at(state: &State, listed: &[Key], since: Instant) -> Option<Instant> {
    let missing = vouched(state).into_iter().filter(|key| !listed.contains(key));
    missing.filter_map(|key| state.runs.get(&key)).map(|run| since + run.heartbeat / 4).min()
}

fn renew(state: &mut State, at: Moment, out: &mut Vec<Command>) {
    let keys = vouched(state);
    // A heartbeat that replaces one under way does not wait: were it replaced in turn, no renewal
    // would ever be heard of.
    let (due, waits) = match &state.beat {
        Poll::Idle => (true, true),
        Poll::Pausing(_, until) => (*until <= at.now, true),
        Poll::Asked(listed, since) => {
            (restart_at(state, listed, *since).is_some_and(|again| again <= at.now), false)
        }
    };
    if keys.is_empty() {
        if !matches!(state.beat, Poll::Asked(..)) {
            state.beat = Poll::Idle;
        }
        return;
    }
    if due {
        let shortest = keys.iter().filter_map(|key| state.runs.get(key)).map(|run| run.heartbeat).min();
        let wait = if waits { shortest.unwrap_or(Duration::ZERO) } else { Duration::ZERO };
        out.push(Command::Heartbeat { held: keys.iter().map(|key| key.held()).collect(), wait });
        state.beat = Poll::Asked(keys, at.now);
    }
}

/// What a worker says of its room.
pub(super) fn room(state: &State) -> Room {
    let full = match state.phase {
        Phase::Draining(_) | Phase::Killing | Phase::Over => Some(ROOM_DRAINS.to_owned()),
        Phase::Leasing if free(state) == 0 => Some(Room::taken(state.slots)),
        Phase::Leasing => None,
    };
    Room { slots: state.slots, full }
}

pub(super) fn free(state: &State) -> u32 {
    state.slots.saturating_sub(u32::try_from(state.runs.len()).unwrap_or(u32::MAX))
}
