//! `release`: a worker returns a lease. The run remains current. Neither a failure nor a crash is counted;
//! worker faults are counted separately so that a task cannot move between workers forever.

use docket_schema::{
    ids::Epoch,
    task::{LeaseReleaseReason, TaskBlocked, TaskBlockedReason, TaskRecord, TaskReleased, WORKER_FAULTS_MAX},
};

use super::lease_status::require_lease;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Returns the lease.
///
/// # Errors
/// Rejected if the caller no longer holds the lease.
pub fn release(
    record: &TaskRecord,
    epoch: Epoch,
    why: LeaseReleaseReason,
) -> Result<CommandPlan, CommandRejection> {
    require_lease(record, epoch)?;
    Ok(CommandPlan {
        task_events: vec![TaskReleased { epoch, why, message: None }.into()],
        run_write: record.run.map(RunWrite::unlease),
        ..CommandPlan::default()
    })
}

/// Returns the lease because of a fault of the worker: like [`release`], with the worker's description of the
/// fault. The last of [`WORKER_FAULTS_MAX`] consecutive faults blocks the task for a person.
///
/// # Errors
/// Rejected if the caller no longer holds the lease.
pub fn release_for_fault(
    record: &TaskRecord,
    epoch: Epoch,
    message: String,
) -> Result<CommandPlan, CommandRejection> {
    let mut plan = release(record, epoch, LeaseReleaseReason::WorkerFault)?;
    let faults = record.worker_faults.saturating_add(1);
    let event = match record.run.filter(|_| faults >= WORKER_FAULTS_MAX) {
        None => TaskReleased { epoch, why: LeaseReleaseReason::WorkerFault, message: Some(message) }.into(),
        Some(run) => TaskBlocked {
            run,
            why: TaskBlockedReason::WorkerFault,
            message: Some(format!(
                "{faults} attempts in a row ended with a fault of the worker, the last with: {message}"
            )),
            wake_at: None,
            unverified: None,
        }
        .into(),
    };
    plan.task_events = vec![event];
    Ok(plan)
}
