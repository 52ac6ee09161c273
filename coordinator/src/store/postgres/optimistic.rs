//! Optimistic commands, tried without locks first: one statement that the database itself refuses if the
//! decision no longer holds.

use crate::store::{AppendCondition, writer::BatchCommand};

/// Whether the command submits tasks that depend on nothing but their blobs.
pub(super) fn is_lock_free_submit(command: &BatchCommand) -> bool {
    let BatchCommand::Submit(request) = command else { return false };
    request.command.tasks.iter().all(|task| task.fork.is_none() && task.spec.conditions.after.is_empty())
}

/// Whether the command is an append that is safe to send twice and needs only heads and events.
pub(super) fn is_lock_free_append(command: &BatchCommand) -> bool {
    let BatchCommand::Append(request) = command else { return false };
    let repeats = match request.command.condition {
        AppendCondition::LeaseHolder(..) | AppendCondition::ExpectedSeq(_) => true,
        AppendCondition::AtHead => false,
    };
    repeats && request.command.blobs.is_empty() && request.command.required_blobs.is_empty()
}
