//! `expire`: nothing was heard of a worker for a lease time. Nothing is counted; the run stays in
//! hand, and its fence shuts in the same transaction: from here on the late worker is refused.

use docket_schema::{
    ids::Epoch,
    task::{TaskLeaseExpired, TaskRecord},
};

use super::lease_status::require_lease;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Ends the lease.
///
/// # Errors
/// The lease has ended already.
pub fn expire(record: &TaskRecord, epoch: Epoch) -> Result<CommandPlan, CommandRejection> {
    require_lease(record, epoch)?;
    Ok(CommandPlan {
        task_events: vec![TaskLeaseExpired { epoch }.into()],
        run_write: record.run.map(RunWrite::unlease),
        ..CommandPlan::default()
    })
}
