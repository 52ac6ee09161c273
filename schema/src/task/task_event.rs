//! Events of a task's stream: every change of its state is one.

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

/// A task was submitted to the backlog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSubmitted {
    /// The task's specification.
    pub spec: TaskSpec,
    /// Who submitted it.
    #[serde(default)]
    pub by: String,
    /// For a fork: where its first run starts. A `TaskResumed` with that run follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// For a delegated task: the run that delegated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
}

/// The event of a run's history that a task continues from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    /// The run.
    pub run: RunId,
    /// The last shared event.
    pub seq: Seq,
    /// The turn that ends there.
    pub turn: Turn,
}

/// Its scheduled time has passed, or its dependencies have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMadeAvailable {}

/// A worker leased the task. The envelope's epoch is the lease's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeased {
    /// The fencing token: higher than any before.
    pub epoch: Epoch,
    /// The run that continues or starts.
    pub run: RunId,
    /// The worker's incarnation.
    pub worker: IncarnationId,
    /// The worker's name, for people.
    #[serde(default)]
    pub worker_name: String,
}

/// Why a lease was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseReleaseReason {
    /// The worker drains: it finished its turn and exits.
    Drained,
    /// The worker does not know the lease, because it never received the response.
    Unknown,
    /// The worker cannot run the task through no fault of the task. Counted separately from failures and
    /// crashes.
    WorkerFault,
}

/// The worker released the lease; no failure and no crash is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReleased {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The reason.
    pub why: LeaseReleaseReason,
    /// The worker's message about its fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The lease expired without a heartbeat; nothing is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeaseExpired {
    /// The lease's epoch.
    pub epoch: Epoch,
}

/// The run process crashed while its supervisor kept running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunCrashed {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// How it crashed: `signal 9`, `exit 101`.
    pub how: String,
}

/// A run failed, and another one will be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunFailed {
    /// The run.
    pub run: RunId,
    /// The kind of failure.
    pub why: FailureKind,
    /// One line for people.
    pub message: String,
    /// When the next run may start.
    pub retry_at: Timestamp,
    /// The next run, if the failed one continued another run's history: its stream starts with `Forked` as
    /// well. None if it starts over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
}

/// Maximum number of consecutive leases of a task that may end with a worker fault. The last of them blocks
/// the task for a person.
///
/// A fault is the worker's and says nothing about the task, so the number is far higher than a repair takes:
/// a worker retries after pauses that double up to two minutes, so 20 attempts take half an hour for a worker
/// with one task, and longer with more. Some faults affect every worker, however, such as a model that no key
/// can access, and without a limit their tasks would move from worker to worker forever.
pub const WORKER_FAULTS_MAX: u32 = 20;

/// Why a task is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskBlockedReason {
    /// It waits for a person's answer.
    Person,
    /// It waits for a child task.
    Child,
    /// It was paused by a person.
    Paused,
    /// The model's provider requires a person to act: money, or a key. `docket retry` then continues the run.
    Provider,
    /// The batch budget is used up.
    Budget,
    /// The model's provider is unavailable. The task continues automatically after a while; `docket retry`
    /// continues it at once.
    Outage,
    /// Workers released it too many times in a row because of their own faults ([`WORKER_FAULTS_MAX`]). A
    /// person must fix a worker or the task; `docket answer` or `docket retry` then continues the run.
    WorkerFault,
}

/// The run is waiting; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlocked {
    /// The run.
    pub run: RunId,
    /// The reason.
    pub why: TaskBlockedReason,
    /// The question, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it continues automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// If its work is done but final checks did not run: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// The task was paused while no worker had it, until `TaskUnblocked`. An active run is paused by its own
/// events, and `TaskBlocked` follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskPaused {
    /// Who paused it.
    pub by: String,
}

/// The block has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskUnblocked {}

/// The task's work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCompleted {
    /// The run that did it.
    pub run: RunId,
    /// Why it is unverified: there are no checks, or some did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// The author of cancellations because of a failed dependency.
pub const BY_DEPENDENCY: &str = "dependency";

/// The task was cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelled {
    /// Who cancelled it.
    pub by: String,
    /// The reason.
    #[serde(default)]
    pub reason: String,
}

/// Why a task was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// The last allowed run failed.
    Failures,
    /// Its run process crashed too often.
    Poison,
}

/// The task was discarded. Everything is kept; `docket retry` restarts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDiscarded {
    /// The last run.
    pub run: RunId,
    /// The reason.
    pub why: DiscardReason,
    /// One line for people.
    pub message: String,
}

/// A retry of an ended or waiting task from the start was requested. Counters are reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRetried {
    /// Who requested it.
    pub by: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The current run that continues: the next attempt of one that continued another run's history. None if
    /// a new run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whether it waits for its dependencies again; for each that no longer blocks it, a
    /// `TaskDependencyEnded` follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

/// A continuation from the end of a turn was requested, as a new run of this task. Second event of a forked
/// task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResumed {
    /// Who requested it.
    pub by: String,
    /// The new run, whose stream starts with `Forked`.
    pub run: RunId,
    /// The run it continues.
    pub parent: RunId,
}

/// The task's priority was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReprioritized {
    /// The new priority.
    pub priority: i16,
}

/// A dependency ended and no longer blocks the task. The task becomes available when none does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDependencyEnded {
    /// The dependency.
    pub on: TaskId,
    /// The state it ended in.
    pub state: TaskState,
}
