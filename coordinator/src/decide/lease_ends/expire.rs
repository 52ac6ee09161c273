//! `expire`: nothing was heard of a worker for a lease time. Nothing is counted; the run stays in
//! hand, and its fence shuts in the same transaction: from here on the late worker is refused.

use docket_schema::{
    ids::Epoch,
    task::{TaskLeaseExpired, TaskRecord},
};

use super::standing::require_lease;
use crate::decide::{Plan, Rejection, RunWrite};

/// Ends the lease.
///
/// # Errors
/// The lease has ended already.
pub fn expire(record: &TaskRecord, epoch: Epoch) -> Result<Plan, Rejection> {
    require_lease(record, epoch)?;
    Ok(Plan {
        task: vec![TaskLeaseExpired { epoch }.into()],
        run: record.run.map(RunWrite::shut),
        ..Plan::default()
    })
}
