//! `release`: a worker gives a lease back. The run stays in hand. No failure and no crash is counted; a fault of the
//! worker is counted apart, for no task may go from worker to worker for ever.

use docket_schema::{
    ids::Epoch,
    task::{LeaseReleaseReason, TaskBlocked, TaskBlockedReason, TaskRecord, TaskReleased, WORKER_FAULTS_MAX},
};

use super::lease_status::require_lease;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Gives the lease back.
///
/// # Errors
/// The lease is not the asker's any more.
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

/// Gives the lease back because the worker cannot carry out the task, for a fault of its own: as [`release`], with what
/// the worker says of the fault. The last of [`WORKER_FAULTS_MAX`] in a row blocks the task for a person.
///
/// # Errors
/// The lease is not the asker's any more.
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
