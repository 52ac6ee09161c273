//! Whether a lease still stands, and what became of it if not. Used by every command that a lease's
//! holder may send, by heartbeats, and by the store when it refuses a late write.
//!
//! A lease stands until an event ended it. A deadline that has passed ends nothing by itself: until
//! the expirer has written `TaskLeaseExpired` nobody else can have acted on the task, so a late
//! renewal, append or completion is accepted and does no harm.

use docket_schema::{
    api::LeaseLostReason,
    ids::Epoch,
    task::{TaskRecord, TaskState},
};

use crate::decide::CommandRejection;

/// What became of the lease under `epoch`; `None` while it stands.
pub fn lease_lost_reason(record: &TaskRecord, epoch: Epoch) -> Option<LeaseLostReason> {
    if epoch < record.epoch {
        return Some(LeaseLostReason::Fenced);
    }
    if epoch > record.epoch {
        // No such lease was ever granted by this log: it was restored from an older copy.
        return Some(LeaseLostReason::Unknown);
    }
    match record.state {
        TaskState::Running => None,
        TaskState::Available => Some(LeaseLostReason::Expired),
        TaskState::Cancelled => Some(LeaseLostReason::Cancelled),
        TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Retryable
        | TaskState::Blocked
        | TaskState::Completed
        | TaskState::Discarded => Some(LeaseLostReason::Ended),
    }
}

/// Refuses who does not hold the lease.
pub(in crate::decide) fn require_lease(record: &TaskRecord, epoch: Epoch) -> Result<(), CommandRejection> {
    match lease_lost_reason(record, epoch) {
        None => Ok(()),
        Some(why) => Err(CommandRejection::LeaseLost { asked: epoch, current: record.epoch, why }),
    }
}
