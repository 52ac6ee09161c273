//! What clients were told: every answer that says that something is durable, as it passed on its way to them.

use std::collections::BTreeSet;

use docket_schema::{
    event::{Head, NewEvent},
    ids::{Epoch, IncarnationId, RunId, Seq, TaskId},
};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Acknowledged {
    /// Tasks whose submit was acknowledged.
    pub tasks: BTreeSet<TaskId>,
    /// Leases that a worker was given. A request sent again is answered again, and stands here again.
    pub leases: Vec<AckedLease>,
    /// Renewals of leases.
    pub renewals: Vec<AckedRenewal>,
    /// Appends.
    pub appends: Vec<AckedAppend>,
}

/// "You have this task."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckedLease {
    /// The task.
    pub task: TaskId,
    /// The fencing token.
    pub epoch: Epoch,
    /// The run.
    pub run: RunId,
    /// Who was told.
    pub worker: IncarnationId,
    /// When the answer passed, on a clock of all that passed.
    pub acknowledged_at: u64,
}

/// "You have it still."
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckedRenewal {
    /// The task.
    pub task: TaskId,
    /// The fencing token.
    pub epoch: Epoch,
    /// When it was asked for, on the same clock.
    pub requested_at: u64,
}

/// "These events are in the log."
#[derive(Debug, Clone, PartialEq)]
pub struct AckedAppend {
    /// The run.
    pub run: RunId,
    /// Under this epoch.
    pub epoch: Epoch,
    /// The event before them.
    pub after: Seq,
    /// The events.
    pub events: Vec<NewEvent>,
    /// The stream's head after them, as it was told.
    pub head: Head,
}
