//! The dispatcher's state, its events and its commands. Plain data: the rules are in `decide`, their execution in
//! `dispatch`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    api::{HeldLease, Lease, LeaseLostReason, ReleaseReason, WorkerFault},
    ids::{Epoch, TaskId, TreeHash},
    task::Flow,
};

use super::quarantine::FaultQuarantine;
use crate::{
    bootstrap::{EXIT_DRAINED, EXIT_LEASE_LOST, EXIT_WORKER_FAULT},
    progress::StallReason,
};

/// A lease: a task under the epoch it was leased with. Leased again, the same task has another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseKey {
    pub(super) task: TaskId,
    pub(super) epoch: Epoch,
}

impl LeaseKey {
    pub(super) const fn from_lease(lease: &Lease) -> Self {
        Self { task: lease.task, epoch: lease.epoch }
    }

    pub(super) const fn to_held(self) -> HeldLease {
        HeldLease { task: self.task, epoch: self.epoch }
    }
}

/// Every way a run process can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Status 0: the run ended or blocked, as recorded in its log.
    Finished,
    /// It finished its turn because it was asked to.
    Drained,
    /// It learned that its lease is lost.
    LeaseLost,
    /// Any other status: a panic, a failed start.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It stopped making progress and was killed.
    Stalled(StallReason),
    /// It could not be started, or met a fault of this worker: the task is not to blame.
    WorkerFault,
}

impl RunEnd {
    /// Maps an exit status to its meaning.
    pub const fn from_status(status: i32) -> Self {
        match status {
            0 => Self::Finished,
            EXIT_DRAINED => Self::Drained,
            EXIT_LEASE_LOST => Self::LeaseLost,
            EXIT_WORKER_FAULT => Self::WorkerFault,
            other => Self::Exited(other),
        }
    }
}

impl std::fmt::Display for RunEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::Drained => f.write_str("drained"),
            Self::LeaseLost => f.write_str("lease lost"),
            Self::Exited(status) => write!(f, "exit {status}"),
            Self::Signalled(signal) => write!(f, "signal {signal}"),
            Self::Stalled(StallReason::NoProgress) => {
                f.write_str("no progress within the time limit; killed")
            }
            Self::Stalled(StallReason::Stopped) => {
                f.write_str("stopped by a signal and not continued; killed")
            }
            Self::WorkerFault => f.write_str("a fault of this worker"),
        }
    }
}

/// How far a run process got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunMilestone {
    /// Not beyond its start, as far as is known: whether it would have met a fault of the worker is open.
    Starting,
    /// To the work of its task.
    Working,
    /// To an end that is recorded in its log.
    Ended,
}

/// The lifecycle stage of a run process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessStage {
    /// It works.
    Running,
    /// It was asked to finish its turn.
    Draining,
    /// Its task ended: it is about to exit by itself, and is killed at this instant otherwise.
    Exiting(Instant),
    /// Its group was killed.
    Killed(RunKillReason),
}

impl ProcessStage {
    /// Returns all stages, for tests that enumerate them.
    #[cfg(test)]
    pub(super) fn all_stages(at: Instant) -> Vec<Self> {
        let mut all = vec![Self::Running, Self::Draining, Self::Exiting(at)];
        all.extend([RunKillReason::Drain, RunKillReason::Lost, RunKillReason::Deadline].map(Self::Killed));
        all
    }
}

/// Why a group was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKillReason {
    /// The grace period of a drain passed, or a second signal skipped it.
    Drain,
    /// The lease belongs to another worker, or has ended.
    Lost,
    /// The lease could not be renewed in time: another worker may have the task.
    Deadline,
}

impl std::fmt::Display for RunKillReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Drain => "it did not finish its turn in time",
            Self::Lost => "its lease is lost",
            Self::Deadline => "its lease could not be renewed in time",
        })
    }
}

/// A run process and its lease.
#[derive(Debug, Clone)]
pub(super) struct LeasedRun {
    pub(super) lease_time: Duration,
    pub(super) heartbeat_interval: Duration,
    /// The last instant at which no other worker can have the task.
    pub(super) lease_valid_until: Instant,
    pub(super) stage: ProcessStage,
    /// What its task requires of a worker.
    pub(super) flow: Flow,
    /// The files that its task begins with.
    pub(super) base_tree: TreeHash,
    pub(super) started_at: Instant,
}

/// A repeated call: in flight, waiting for its next attempt, or not wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PollState<T> {
    Idle,
    InFlight(T, Instant),
    BackingOff(T, Instant),
}

/// A lease request; a retry sends the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseAttempt {
    pub(super) number: u64,
    pub(super) max: u32,
}

/// The lifecycle phase of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    /// It leases tasks.
    Leasing,
    /// It leases none, and lets runs finish their turn until this instant.
    Draining(Instant),
    /// It kills the remaining runs.
    Killing,
    /// Nothing is left.
    Finished,
}

/// A lease that is being released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingRelease {
    pub(super) reason: ReleaseReason,
    /// From this instant, the lease has expired by itself.
    pub(super) expires_at: Instant,
    /// `None` while an attempt is in flight.
    pub(super) retry_at: Option<Instant>,
    pub(super) attempts: u32,
}

/// The dispatcher's full state.
#[derive(Debug)]
pub(super) struct DispatcherState {
    pub(super) slots: u32,
    pub(super) grace: Duration,
    pub(super) phase: WorkerPhase,
    pub(super) last_request_number: u64,
    pub(super) lease_poll: PollState<LeaseAttempt>,
    pub(super) lease_failures: u32,
    /// The faults sent with the request in flight: [`FaultQuarantine::version`].
    pub(super) faults_version: u64,
    /// Faults of this worker.
    pub(super) quarantine: FaultQuarantine,
    /// No new lease request before this instant.
    pub(super) no_request_before: Option<Instant>,
    /// `InFlight` holds the listed leases.
    pub(super) heartbeat_poll: PollState<Vec<LeaseKey>>,
    pub(super) heartbeat_failures: u32,
    pub(super) runs: BTreeMap<LeaseKey, LeasedRun>,
    pub(super) releases: BTreeMap<LeaseKey, PendingRelease>,
    pub(super) tally: RunTally,
}

impl DispatcherState {
    pub(super) fn new(slots: u32, grace: Duration) -> Self {
        Self {
            slots,
            grace,
            phase: WorkerPhase::Leasing,
            last_request_number: 0,
            lease_poll: PollState::Idle,
            lease_failures: 0,
            faults_version: 0,
            quarantine: FaultQuarantine::default(),
            no_request_before: None,
            heartbeat_poll: PollState::Idle,
            heartbeat_failures: 0,
            runs: BTreeMap::new(),
            releases: BTreeMap::new(),
            tally: RunTally::default(),
        }
    }
}

/// Counts of runs by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTally {
    /// Leases that got a run process.
    pub started: u64,
    /// Runs that ended by themselves with a complete log.
    pub finished: u64,
    /// Runs released at the end of a turn, or before they were started.
    pub drained: u64,
    /// Runs released for a fault of this worker.
    pub faulted: u64,
    /// Run processes that died.
    pub crashed: u64,
    /// Runs whose lease was lost, including canceled tasks.
    pub lost: u64,
    /// Run processes that this supervisor had to kill.
    pub killed: u64,
}

/// Why a call failed, as far as the dispatcher needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// It may work later.
    Retryable,
    /// It will never work.
    Final,
}

/// An event that the dispatcher handles.
#[derive(Debug)]
pub(super) enum DispatcherEvent {
    /// The worker starts.
    Started,
    /// The leases granted; empty if there was no work. They began after the coordinator had held the request for this
    /// long.
    Leased(Vec<Lease>, Duration),
    LeaseFailed(CallFailure),
    /// The heartbeat in flight was acknowledged.
    HeartbeatAcknowledged {
        renewed: Vec<TaskId>,
        lost: Vec<(TaskId, LeaseLostReason)>,
    },
    HeartbeatFailed,
    RunEnded(LeaseKey, RunEnd, RunMilestone),
    /// It ended as [`RunEnd::WorkerFault`] and reported this fault.
    RunFaulted(LeaseKey, WorkerFault),
    /// The coordinator took a lease back, or rejected the release.
    Released(LeaseKey),
    ReleaseFailed(LeaseKey, CallFailure),
    /// The worker was asked to end.
    TerminationSignal,
    /// The instant of [`super::decide::next_wake`] has come.
    Tick,
}

/// A command of the dispatcher.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DispatcherCommand {
    /// Request leases, replacing a request in flight.
    Lease { attempt: LeaseAttempt, wait: Duration },
    /// Renew leases, replacing a heartbeat in flight.
    Heartbeat { leases: Vec<HeldLease>, wait: Duration },
    /// Start a run process.
    Start(Box<Lease>),
    /// Ask a run process to finish its turn.
    Terminate(LeaseKey),
    /// Kill a run process and its group at once.
    Kill(LeaseKey, RunKillReason),
    /// Release a lease.
    Release(LeaseKey, ReleaseReason),
    /// Nothing is left to do.
    Finish,
}
