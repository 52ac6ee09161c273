//! Commands that may be tried without locks first: one statement that the database itself refuses where the decision
//! behind it does not hold any more.

use crate::store::{AppendCondition, writer::BatchCommand};

/// New tasks that depend on nothing but their blobs.
pub(super) fn is_lock_free_submit(command: &BatchCommand) -> bool {
    let BatchCommand::Submit(request) = command else { return false };
    request.command.tasks.iter().all(|task| task.fork.is_none() && task.spec.conditions.after.is_empty())
}

/// Appends that may be sent twice without harm, and that need nothing but heads and events.
pub(super) fn is_lock_free_append(command: &BatchCommand) -> bool {
    let BatchCommand::Append(request) = command else { return false };
    let repeats = match request.command.condition {
        AppendCondition::LeaseHolder(..) | AppendCondition::ExpectedSeq(_) => true,
        AppendCondition::AtHead => false,
    };
    repeats && request.command.blobs.is_empty() && request.command.required_blobs.is_empty()
}
