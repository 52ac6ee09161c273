//! `lease`: assigns an available task to a worker under the next epoch.

use docket_schema::{
    ids::{IncarnationId, RunId},
    task::{TaskLeased, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// The worker that receives the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecipient {
    /// The current start of the worker process.
    pub incarnation: IncarnationId,
    /// Its display name.
    pub name: String,
}

/// Leases the task: continues the current run, or starts `fresh`.
///
/// # Errors
/// Rejected if the task is not available.
pub fn lease(
    record: &TaskRecord,
    lessee: &LeaseRecipient,
    fresh: RunId,
) -> Result<CommandPlan, CommandRejection> {
    if record.state != TaskState::Available {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "only an available task can be leased",
        });
    }
    let epoch = record.epoch.next();
    let run = record.run.unwrap_or(fresh);
    let leased = TaskLeased { epoch, run, worker: lessee.incarnation, worker_name: lessee.name.clone() };
    let write =
        RunWrite { run, condition: RunCondition::AtHead, events: Vec::new(), fence: FenceAfter::Open(epoch) };
    Ok(CommandPlan { task_events: vec![leased.into()], run_write: Some(write), ..CommandPlan::default() })
}
