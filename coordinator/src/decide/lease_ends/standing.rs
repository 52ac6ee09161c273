//! Whether a lease still stands, and what became of it if not. Used by every command that a lease's
//! holder may send, by heartbeats, and by the store when it refuses a late write.
//!
//! A lease stands until an event ended it. A deadline that has passed ends nothing by itself: until
//! the expirer has written `TaskLeaseExpired` nobody else can have acted on the task, so a late
//! renewal, append or completion is accepted and does no harm.

use docket_schema::{
    ids::Epoch,
    task::{TaskRecord, TaskState},
    wire::LostWhy,
};

use crate::decide::Rejection;

/// What became of the lease under `epoch`; `None` while it stands.
pub fn lost_why(record: &TaskRecord, epoch: Epoch) -> Option<LostWhy> {
    if epoch < record.epoch {
        return Some(LostWhy::Fenced);
    }
    if epoch > record.epoch {
        // No such lease was ever granted by this log: it was restored from an older copy.
        return Some(LostWhy::Unknown);
    }
    match record.state {
        TaskState::Running => None,
        TaskState::Available => Some(LostWhy::Expired),
        TaskState::Cancelled => Some(LostWhy::Cancelled),
        TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Retryable
        | TaskState::Blocked
        | TaskState::Completed
        | TaskState::Discarded => Some(LostWhy::Ended),
    }
}

/// Refuses who does not hold the lease.
pub(in crate::decide) fn require_lease(record: &TaskRecord, epoch: Epoch) -> Result<(), Rejection> {
    match lost_why(record, epoch) {
        None => Ok(()),
        Some(why) => Err(Rejection::LeaseLost { asked: epoch, current: record.epoch, why }),
    }
}
