//! Request and response bodies for leases: request, renew, release.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{Epoch, IncarnationId, QueueName, RunId, TaskId},
    run::EngineRef,
    task::{DelegatedBy, LabelSet, TaskSpec, TaskState},
};

use super::fault::WorkerFault;

/// `POST /v1/lease`: requests work; waits up to `wait_ms` for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// The worker process's incarnation.
    pub incarnation: IncarnationId,
    /// Increases by one with each new request. A repeated request has the same number and gets the same
    /// response.
    pub number: u64,
    /// The worker's name, for people.
    pub name: String,
    /// Queues the worker serves; empty means all.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Engines and versions the worker supports.
    pub engines: Vec<EngineRef>,
    /// The worker's labels: a task can require some of them.
    #[serde(default, skip_serializing_if = "LabelSet::is_empty")]
    pub labels: LabelSet,
    /// The sandbox layers around the commands of its runs, as `docket doctor` lists them; at most
    /// [`SANDBOX_LAYERS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Faults that prevent it from running some tasks; such tasks are not leased to it. At most
    /// [`FAULTS_MAX`](super::FAULTS_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<WorkerFault>,
    /// Maximum number of runs, and why it takes no more at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// Maximum number of leases wanted, at most [`LEASE_MAX`].
    pub max: u32,
    /// How long to wait for work in milliseconds, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// Maximum number of sandbox layers that a worker lists.
pub const SANDBOX_LAYERS_MAX: usize = 32;

/// Capacity of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerCapacity {
    /// Maximum number of runs.
    pub slots: u32,
    /// Why it takes no more at the moment; none if it does. At most [`CAPACITY_REASON_BYTES_MAX`] bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

impl WorkerCapacity {
    /// Returns the reason used when all slots are taken.
    pub fn describe_full(slots: u32) -> String {
        match slots {
            1 => "its one slot is taken".to_owned(),
            slots => format!("its {slots} slots are taken"),
        }
    }
}

/// The [`WorkerCapacity::full`] of a draining worker.
pub const CAPACITY_DRAINING: &str = "it drains";

/// Maximum length of [`WorkerCapacity::full`], in bytes.
pub const CAPACITY_REASON_BYTES_MAX: usize = 200;

/// Response of a lease request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseResponse {
    /// The new leases.
    pub leases: Vec<Lease>,
    /// How long the coordinator had been handling the request when the leases started, in milliseconds. They
    /// last `lease_ms` from that instant, and the worker knows when it sent the request.
    #[serde(default)]
    pub held_ms: u64,
    /// As in a heartbeat response; there are no leases if it is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A leased task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The run to start or to continue.
    pub run: RunId,
    /// Number of the task's run, starting at 1.
    pub attempt: u32,
    /// The fencing token, sent with every write.
    pub epoch: Epoch,
    /// Bearer token that is valid for this run and epoch only.
    pub token: String,
    /// How long the lease lasts without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// Interval of heartbeats in milliseconds.
    pub heartbeat_ms: u64,
    /// Head of the run's stream; empty for a new run.
    pub head: Head,
    /// Whether the run has a parent whose history comes first.
    pub forked: bool,
    /// The task's specification.
    pub spec: TaskSpec,
    /// For a delegated task: who delegated it, and the tree it starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
}

/// `POST /v1/heartbeat`: renews leases. Waits up to `wait_ms` for news (a cancellation, a lost lease).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The worker process's incarnation.
    pub incarnation: IncarnationId,
    /// The leases it holds.
    pub held: Vec<HeldLease>,
    /// As in a lease request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// How long to wait for news in milliseconds, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// A lease that a worker believes it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLease {
    /// The task.
    pub task: TaskId,
    /// The epoch it was leased under.
    pub epoch: Epoch,
}

/// Result of a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Tasks whose leases were renewed.
    pub renewed: Vec<TaskId>,
    /// Lost leases with the reason: the worker must end their run processes at once.
    pub lost: Vec<LostLease>,
    /// The worker was asked to take no more tasks, finish its runs and exit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A lost lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLease {
    /// The task.
    pub task: TaskId,
    /// Why it was lost.
    pub why: LeaseLostReason,
}

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseLostReason {
    /// It expired; no other worker has the task yet.
    Expired,
    /// Another worker has the task under a higher epoch.
    Fenced,
    /// The task was cancelled.
    Cancelled,
    /// The task ended, was blocked, or was resumed in another run.
    Ended,
    /// The task does not exist.
    Unknown,
}

/// Response to the release of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseResponse {
    /// The task's state after the release.
    pub state: TaskState,
}

/// `POST /v1/tasks/{id}/release`: the supervisor returns a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The epoch it was leased under.
    pub epoch: Epoch,
    /// Why it is released.
    pub why: ReleaseReason,
}

/// Why a supervisor releases a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// The worker drains, and the run finished its turn or never started.
    Drained,
    /// The run process crashed: `signal 9`, `exit 101`.
    Crashed(String),
    /// The worker cannot run the task through no fault of the task. Contains the message of the worker fault,
    /// at most [`FAULT_MESSAGE_BYTES_MAX`](super::FAULT_MESSAGE_BYTES_MAX) bytes.
    WorkerFault(String),
}
