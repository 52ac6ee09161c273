//! Bodies about leases: asked for, renewed, given back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{Epoch, IncarnationId, QueueName, RunId, TaskId},
    run::EngineRef,
    task::{DelegatedBy, LabelSet, TaskSpec, TaskState},
};

use super::fault::WorkerFault;

/// `POST /v1/lease`: asks for work; waits up to `wait_ms` for some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// Rises by one with each new request; a request sent again has the same number and gets the
    /// same answer.
    pub number: u64,
    /// The worker's name, for people.
    pub name: String,
    /// Queues it serves; empty = all.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Engines and versions it has.
    pub engines: Vec<EngineRef>,
    /// What the worker says of itself: a task may want a worker that has these.
    #[serde(default, skip_serializing_if = "LabelSet::is_empty")]
    pub labels: LabelSet,
    /// The walls around what its runs' models do, as `docket doctor` names them; at most [`LAYERS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// What keeps it from carrying out some tasks: none that such a fault concerns is leased to it. At most
    /// [`FAULTS_MAX`](super::FAULTS_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<WorkerFault>,
    /// How many runs it takes at most, and why it takes no more now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// Most leases wanted, at most [`LEASE_MAX`].
    pub max: u32,
    /// How long to wait for work, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// Most layers of walls that a worker names.
pub const SANDBOX_LAYERS_MAX: usize = 32;

/// How much room a worker has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerCapacity {
    /// Runs it takes at most.
    pub slots: u32,
    /// Why it takes no more now; none where it would. At most [`ROOM_WHY_BYTES_MAX`] bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

impl WorkerCapacity {
    /// What is said where all of so many slots are taken.
    pub fn describe_full(slots: u32) -> String {
        match slots {
            1 => "its one slot is taken".to_owned(),
            slots => format!("its {slots} slots are taken"),
        }
    }
}

/// The [`Room::full`] of a worker that takes no more and ends.
pub const CAPACITY_DRAINING: &str = "it drains";

/// Longest [`Room::full`], in bytes.
pub const CAPACITY_REASON_BYTES_MAX: usize = 200;

/// Work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseResponse {
    /// What the worker now holds.
    pub leases: Vec<Lease>,
    /// How long the request had been in hand when the leases began: they last `lease_ms` from that instant,
    /// and a worker knows when it asked.
    #[serde(default)]
    pub held_ms: u64,
    /// As in a heartbeat's answer; there are no leases then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A task in a worker's hands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The run to begin or to go on with.
    pub run: RunId,
    /// How manieth run of the task, from 1.
    pub attempt: u32,
    /// The fencing token, borne by every write.
    pub epoch: Epoch,
    /// Bearer token that is good for this run and epoch only.
    pub token: String,
    /// How long the lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How often to send heartbeats.
    pub heartbeat_ms: u64,
    /// Head of the run's stream: empty for a run that begins.
    pub head: Head,
    /// The run has a parent whose history comes first.
    pub forked: bool,
    /// What is asked.
    pub spec: TaskSpec,
    /// Of a task that a run gave away: who did, and from which tree it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
}

/// `POST /v1/heartbeat`: renews leases. Waits up to `wait_ms` for news (a cancel, a lost lease).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// What it holds.
    pub held: Vec<HeldLease>,
    /// As in a lease request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<WorkerCapacity>,
    /// How long to wait for news, at most [`LONG_POLL_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// A lease a worker believes to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldLease {
    /// The task.
    pub task: TaskId,
    /// The epoch it was leased under.
    pub epoch: Epoch,
}

/// What became of the leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatResponse {
    /// Renewed.
    pub renewed: Vec<TaskId>,
    /// Lost, each with the reason: the worker ends the run process at once.
    pub lost: Vec<LostLease>,
    /// Somebody wants the worker to take no more, to end what it has, and then itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A lease that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostLease {
    /// The task.
    pub task: TaskId,
    /// Why.
    pub why: LeaseLostReason,
}

/// Why a lease is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseLostReason {
    /// It expired; nobody has the task yet.
    Expired,
    /// Another worker has the task under a higher epoch.
    Fenced,
    /// The task was cancelled.
    Cancelled,
    /// The task ended, blocked or was resumed elsewhere.
    Ended,
    /// No such task.
    Unknown,
}

/// A lease was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseResponse {
    /// The task's state after it.
    pub state: TaskState,
}

/// `POST /v1/tasks/{id}/release`: the supervisor gives a lease back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The epoch it was leased under.
    pub epoch: Epoch,
    /// Why.
    pub why: ReleaseReason,
}

/// Why a supervisor gives a lease back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// It drains and the run ended its turn, or it did not begin with the task.
    Drained,
    /// The run process died: `signal 9`, `exit 101`.
    Crashed(String),
    /// The worker cannot carry out the task, and the task is not to blame: the message of its fault, of at most
    /// [`FAULT_MESSAGE_BYTES_MAX`](super::FAULT_MESSAGE_BYTES_MAX) bytes.
    WorkerFault(String),
}
