//! `expire`: a worker was silent for a full lease length. Nothing is counted; the run remains current, and
//! its fence closes in the same transaction, so the late worker is rejected from then on.

use docket_schema::{
    ids::Epoch,
    task::{TaskLeaseExpired, TaskRecord},
};

use super::lease_status::require_lease;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Ends the lease.
///
/// # Errors
/// Rejected if the lease has already ended.
pub fn expire(record: &TaskRecord, epoch: Epoch) -> Result<CommandPlan, CommandRejection> {
    require_lease(record, epoch)?;
    Ok(CommandPlan {
        task_events: vec![TaskLeaseExpired { epoch }.into()],
        run_write: record.run.map(RunWrite::unlease),
        ..CommandPlan::default()
    })
}
