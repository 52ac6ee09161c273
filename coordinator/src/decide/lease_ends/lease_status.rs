//! Validity of a lease and, if it is lost, the reason. Used by every command of a lease holder, by
//! heartbeats, and by the store when it rejects a late write.
//!
//! A lease is valid until an event ends it. A passed deadline alone ends nothing: until the expirer has
//! written `TaskLeaseExpired` no one else can have acted on the task, so a late renewal, append or completion
//! is accepted and harmless.

use docket_schema::{
    api::LeaseLostReason,
    ids::Epoch,
    task::{TaskRecord, TaskState},
};

use crate::decide::CommandRejection;

/// Returns why the lease under `epoch` was lost; `None` while it is valid.
pub fn lease_lost_reason(record: &TaskRecord, epoch: Epoch) -> Option<LeaseLostReason> {
    if epoch < record.epoch {
        return Some(LeaseLostReason::Fenced);
    }
    if epoch > record.epoch {
        // This log never granted such a lease: it was restored from an older copy.
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

/// Rejects a caller that does not hold the lease.
pub(in crate::decide) fn require_lease(record: &TaskRecord, epoch: Epoch) -> Result<(), CommandRejection> {
    match lease_lost_reason(record, epoch) {
        None => Ok(()),
        Some(why) => Err(CommandRejection::LeaseLost { asked: epoch, current: record.epoch, why }),
    }
}
