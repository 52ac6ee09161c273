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
        task: vec![TaskReleased { epoch, why }.into()],
        run: record.run.map(RunWrite::shut),
        ..Plan::default()
    })
}
