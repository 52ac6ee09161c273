//! Acknowledgements that clients received: every response that confirms durability, recorded as it passed to
//! them.

use std::collections::BTreeSet;

use docket_schema::{
    event::{Head, NewEvent},
    ids::{Epoch, IncarnationId, RunId, Seq, TaskId},
};

/// All acknowledgements; see the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Acknowledged {
    /// Tasks whose submit was acknowledged.
    pub tasks: BTreeSet<TaskId>,
    /// Acknowledged leases. A request that is sent again is acknowledged, and listed, again.
    pub leases: Vec<AckedLease>,
    pub renewals: Vec<AckedRenewal>,
    pub appends: Vec<AckedAppend>,
}

/// Acknowledges that a worker has a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckedLease {
    pub task: TaskId,
    /// The fencing token.
    pub epoch: Epoch,
    pub run: RunId,
    /// The worker that received the acknowledgement.
    pub worker: IncarnationId,
    /// Time the response passed, on the clock of all recorded messages.
    pub acknowledged_at: u64,
}

/// Acknowledges that a worker still has a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckedRenewal {
    pub task: TaskId,
    /// The fencing token.
    pub epoch: Epoch,
    /// Time of the request, on the same clock.
    pub requested_at: u64,
}

/// Acknowledges that events are in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct AckedAppend {
    pub run: RunId,
    /// The epoch of the append.
    pub epoch: Epoch,
    /// The event before the appended ones.
    pub after: Seq,
    pub events: Vec<NewEvent>,
    /// The acknowledged head of the stream after the append.
    pub head: Head,
}
