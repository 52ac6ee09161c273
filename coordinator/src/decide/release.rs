//! `release`: a worker gives a lease back. Nothing is counted; the run stays in hand.

use docket_schema::{
    ids::Epoch,
    task::{ReleaseWhy, TaskRecord, TaskReleased},
};

use super::{Plan, Rejection, RunWrite, standing::require_lease};

/// Gives the lease back.
///
/// # Errors
/// The lease is not the asker's any more.
pub fn release(record: &TaskRecord, epoch: Epoch, why: ReleaseWhy) -> Result<Plan, Rejection> {
    require_lease(record, epoch)?;
    Ok(Plan {
        task: vec![TaskReleased { epoch, why, message: None }.into()],
        run: record.run.map(RunWrite::shut),
        ..Plan::default()
    })
}

/// Gives the lease back because the worker cannot carry out the task, for a fault of its own: as [`release`], with what
/// the worker says of the fault.
///
/// # Errors
/// The lease is not the asker's any more.
pub fn release_for_fault(record: &TaskRecord, epoch: Epoch, message: String) -> Result<Plan, Rejection> {
    let mut plan = release(record, epoch, ReleaseWhy::WorkerFault)?;
    plan.task = vec![TaskReleased { epoch, why: ReleaseWhy::WorkerFault, message: Some(message) }.into()];
    Ok(plan)
}
