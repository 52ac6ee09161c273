//! What the dispatcher knows, what can happen to it, and what it may ask for. Plain data: the rules
//! are in `decide`, the doing in `dispatch`.

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

/// A lease: a task under the epoch it was leased with. The same task leased again is another.
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
    /// Status 0: the run ended or blocked, and its log says so.
    Finished,
    /// It ended its turn because it was asked to.
    Drained,
    /// It learnt that its lease is no more.
    LeaseLost,
    /// Any other status: a panic, a start that failed.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It was given up while it was there, and killed.
    Stalled(StallReason),
    /// It could not be started, or met a fault of this worker: the task is not to blame.
    WorkerFault,
}

impl RunEnd {
    /// What an exit status means.
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
                f.write_str("no progress in the time it may take; killed")
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
    /// To an end that its log tells.
    Ended,
}

/// Where a run process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessStage {
    /// It works.
    Running,
    /// It was asked to end its turn.
    Draining,
    /// Its task ended: it is about to exit by itself, and is killed at this instant if it does not.
    Exiting(Instant),
    /// Its group was killed.
    Killed(RunKillReason),
}

impl ProcessStage {
    /// All stages but for the instant, for tests that enumerate.
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
    /// The grace of a drain passed, or a second signal skipped it.
    Drain,
    /// The lease is another's, or nobody's.
    Lost,
    /// The lease could not be renewed in time: another worker may have the task.
    Deadline,
}

impl std::fmt::Display for RunKillReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Drain => "it did not end its turn in the time given",
            Self::Lost => "its lease is no more",
            Self::Deadline => "its lease could not be renewed in time",
        })
    }
}

/// A run process and its lease.
#[derive(Debug, Clone)]
pub(super) struct LeasedRun {
    pub(super) lease_time: Duration,
    pub(super) heartbeat_interval: Duration,
    /// The last instant at which nobody else can have the task.
    pub(super) lease_valid_until: Instant,
    pub(super) stage: ProcessStage,
    /// What its task needs of a worker.
    pub(super) flow: Flow,
    /// The files that its task begins with.
    pub(super) base_tree: TreeHash,
    pub(super) started_at: Instant,
}

/// A repeated call: under way, waiting for its next attempt, or not wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PollState<T> {
    Idle,
    InFlight(T, Instant),
    BackingOff(T, Instant),
}

/// A request for leases; sent again, it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseAttempt {
    pub(super) number: u64,
    pub(super) max: u32,
}

/// Where the whole worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerPhase {
    /// It takes work.
    Leasing,
    /// It takes none and lets runs end their turn until this instant.
    Draining(Instant),
    /// It ends what is left.
    Killing,
    /// Nothing is left.
    Finished,
}

/// A lease on its way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingRelease {
    pub(super) reason: ReleaseReason,
    /// After this the lease has expired by itself.
    pub(super) expires_at: Instant,
    /// `None` while an attempt is under way.
    pub(super) retry_at: Option<Instant>,
    pub(super) attempts: u32,
}

/// Everything the dispatcher knows.
#[derive(Debug)]
pub(super) struct DispatcherState {
    pub(super) slots: u32,
    pub(super) grace: Duration,
    pub(super) phase: WorkerPhase,
    pub(super) last_request_number: u64,
    pub(super) lease_poll: PollState<LeaseAttempt>,
    pub(super) lease_failures: u32,
    /// What was said of faults with the request under way: [`Quarantine::version`].
    pub(super) faults_version: u64,
    /// What this worker cannot do now.
    pub(super) quarantine: FaultQuarantine,
    /// No new request for work before this.
    pub(super) no_request_before: Option<Instant>,
    /// `Asked` holds what was listed.
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

/// How many of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTally {
    /// Leases that got a run process.
    pub started: u64,
    /// Runs that ended by themselves, their log complete.
    pub finished: u64,
    /// Runs given back at the end of a turn, or unstarted.
    pub drained: u64,
    /// Runs given back for a fault of this worker.
    pub faulted: u64,
    /// Run processes that died.
    pub crashed: u64,
    /// Runs whose lease was lost, cancelled tasks among them.
    pub lost: u64,
    /// Run processes that had to be killed by this supervisor.
    pub killed: u64,
}

/// Why a call failed, as far as the dispatcher cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// It may work later.
    Retryable,
    /// It will not work, however often it is tried.
    Final,
}

/// What happened.
#[derive(Debug)]
pub(super) enum DispatcherEvent {
    /// The worker begins.
    Started,
    /// Work came; empty where there was none. The leases began when the request had been in the coordinator's
    /// hands for so long.
    Leased(Vec<Lease>, Duration),
    LeaseFailed(CallFailure),
    /// The heartbeat under way was answered.
    HeartbeatAcknowledged {
        renewed: Vec<TaskId>,
        lost: Vec<(TaskId, LeaseLostReason)>,
    },
    HeartbeatFailed,
    RunEnded(LeaseKey, RunEnd, RunMilestone),
    /// It ended as [`RunEnd::WorkerFault`] and said which.
    RunFaulted(LeaseKey, WorkerFault),
    /// The coordinator took a lease back, or would not have it.
    Released(LeaseKey),
    ReleaseFailed(LeaseKey, CallFailure),
    /// Somebody wants the worker to end.
    TerminationSignal,
    /// The instant of [`super::decide::next_wake`] has come.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DispatcherCommand {
    /// Ask for leases, in place of a request under way.
    Lease { attempt: LeaseAttempt, wait: Duration },
    /// Renew, in place of a heartbeat under way.
    Heartbeat { leases: Vec<HeldLease>, wait: Duration },
    /// Start a run process.
    Start(Box<Lease>),
    /// Ask a run process to end its turn.
    Terminate(LeaseKey),
    /// End a run process and its group at once.
    Kill(LeaseKey, RunKillReason),
    /// Give a lease back.
    Release(LeaseKey, ReleaseReason),
    /// Nothing is left to be done.
    Finish,
}
