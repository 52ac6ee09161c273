//! The events of a task's stream: every change of its state is one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    delegation::{DelegatedBy, TaskDelegated},
    delivery_events::{
        TaskAccepted, TaskDelivered, TaskDeliveryBlocked, TaskDeliveryClaimed, TaskDeliveryHookRan,
        TaskDeliveryRequested, TaskNeededNoDelivery, TaskRejected,
    },
    task_spec::TaskSpec,
};
use crate::{
    event::typed_events,
    ids::{Epoch, IncarnationId, RunId, Seq, TaskId, Timestamp, Turn},
    run::FailureKind,
    task_state::TaskState,
};

typed_events! {
    /// An event of a task's stream.
    #[expect(clippy::large_enum_variant, reason = "the large ones come once a stream; boxing them costs each caller")]
    pub enum TaskEvent {
        TaskSubmitted 1,
        TaskMadeAvailable 1,
        TaskLeased 1,
        TaskReleased 1,
        TaskLeaseExpired 1,
        TaskRunCrashed 1,
        TaskRunFailed 1,
        TaskBlocked 1,
        TaskUnblocked 1,
        TaskCompleted 1,
        TaskCancelled 1,
        TaskDiscarded 1,
        TaskRetried 1,
        TaskResumed 1,
        TaskReprioritized 1,
        TaskPaused 1,
        TaskDependencyEnded 1,
        TaskDeliveryRequested 1,
        TaskDelivered 1,
        TaskDeliveryBlocked 1,
        TaskDeliveryHookRan 1,
        TaskAccepted 1,
        TaskRejected 1,
        TaskDeliveryClaimed 1,
        TaskNeededNoDelivery 1,
        TaskDelegated 1,
    }
}

/// A task entered the backlog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSubmitted {
    /// What is asked.
    pub spec: TaskSpec,
    /// Who asked.
    #[serde(default)]
    pub by: String,
    /// For a fork: where its first run begins. A `TaskResumed` with that run follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// For a task that a run gave away: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
}

/// A place in a run's history that a task goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    /// The run.
    pub run: RunId,
    /// Its last event that is shared.
    pub seq: Seq,
    /// The turn whose end that is.
    pub turn: Turn,
}

/// Its time has come, or what it waited for has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMadeAvailable {}

/// A worker has it. The envelope's epoch is the lease's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeased {
    /// The fencing token: higher than any before.
    pub epoch: Epoch,
    /// The run that goes on, or begins.
    pub run: RunId,
    /// The worker's incarnation.
    pub worker: IncarnationId,
    /// The worker's name, for people.
    #[serde(default)]
    pub worker_name: String,
}

/// Why a lease was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseReleaseReason {
    /// The worker drains: it ends its turn and goes.
    Drained,
    /// The worker does not know the lease: its answer was lost.
    Unknown,
    /// The worker cannot carry out the task, and the task is not to blame: counted apart from failures and crashes.
    WorkerFault,
}

/// The worker gave it back; no failure and no crash is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReleased {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// Why.
    pub why: LeaseReleaseReason,
    /// What the worker said of its fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Nothing was heard of the worker for a lease time; nothing is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeaseExpired {
    /// The lease's epoch.
    pub epoch: Epoch,
}

/// The run process died while its supervisor lived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunCrashed {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// How it died: `signal 9`, `exit 101`.
    pub how: String,
}

/// A run failed, and another will be tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunFailed {
    /// The run.
    pub run: RunId,
    /// Why.
    pub why: FailureKind,
    /// One line for a person.
    pub message: String,
    /// When the next run may start.
    pub retry_at: Timestamp,
    /// The next run, where the one that failed stood on another's history: its stream begins with `Forked` as that
    /// one's did. None = it begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// How many leases of a task in a row may end with a fault of the worker. The last of them blocks the task for a person.
///
/// A fault is the worker's and says nothing against the task, so the number is far above what a repair costs: a worker
/// tries again after pauses that double to two minutes, which makes 20 attempts half an hour for a worker with one task,
/// and longer with more. But there are faults that no worker is free of, such as a model to which no key has access,
/// and without a limit their tasks would go from worker to worker for ever.
pub const WORKER_FAULTS_MAX: u32 = 20;

/// Why a task is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskBlockedReason {
    /// A person has to answer.
    Person,
    /// A child task has to end.
    Child,
    /// A person paused it.
    Paused,
    /// The model's provider wants a person: money, or a key. `docket retry` then goes on with the run.
    Provider,
    /// What its batch may use is used up.
    Budget,
    /// The model's provider stays away. It goes on by itself when its time has come; `docket retry` does so at once.
    Outage,
    /// Workers gave it back too often in a row, each for a fault of its own ([`WORKER_FAULTS_MAX`]). A person has to
    /// mend a worker or the task; `docket answer` or `docket retry` then goes on with the run.
    WorkerFault,
}

/// The run waits; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlocked {
    /// The run.
    pub run: RunId,
    /// For what.
    pub why: TaskBlockedReason,
    /// What a person is asked, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it goes on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Its work is done and final checks did not run: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// Somebody paused it while no worker had it: it is held until `TaskUnblocked`. A run that a worker is at is
/// paused by events of its own, and `TaskBlocked` follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPaused {
    /// Who.
    pub by: String,
}

/// What it waited for is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskUnblocked {}

/// The work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCompleted {
    /// The run that did it.
    pub run: RunId,
    /// What keeps it from being verified: there are no checks, or some did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// Who cancels what waits for a task that failed.
pub const BY_DEPENDENCY: &str = "dependency";

/// Somebody cancelled it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelled {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Why a task was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// The last allowed run failed.
    Failures,
    /// Its run process crashed too often.
    Poison,
}

/// The task was given up. All of it is kept; `docket retry` takes it up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDiscarded {
    /// The last run.
    pub run: RunId,
    /// Why.
    pub why: DiscardReason,
    /// One line for a person.
    pub message: String,
}

/// Somebody wants an ended or waiting task run again from the start. Counters begin again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRetried {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The run in hand that goes on: the next try of one that stood on another's history. None = a new run begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// It waits again for all that it was to come after; for each that keeps it back no more, a
    /// `TaskDependencyEnded` follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

/// Somebody wants a run gone on with from a turn's end, as a new run of this task. Second event of a
/// task that is a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResumed {
    /// Who.
    pub by: String,
    /// The new run, whose stream begins with `Forked`.
    pub run: RunId,
    /// The run it stands on.
    pub parent: RunId,
}

/// Somebody changed its priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReprioritized {
    /// The priority from here on.
    pub priority: i16,
}

/// A task that it waited for has ended, and keeps it back no longer. It goes on when none does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDependencyEnded {
    /// Which.
    pub on: TaskId,
    /// As what.
    pub state: TaskState,
}
