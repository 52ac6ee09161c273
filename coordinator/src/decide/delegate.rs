//! Delegation: a run delegates work to a child task, waits for it, and continues with its answer.
//!
//! The parent's `Delegated` and the child's `TaskSubmitted` are one transaction, as are the child's end and
//! the parent's `ChildAnswered`. The parent waits through its record (`waits_for`): it holds no process, slot
//! or key.

use docket_schema::{
    api::LeaseLostReason,
    event::TypedEvent as _,
    ids::{Epoch, TaskId, Turn},
    run::{ChildAnswered, Delegated, RunEvent},
    task::{
        BY_PARENT, DEPENDENCIES_MAX, TaskBlockedReason, TaskDelegated, TaskDependencyEnded, TaskEvent,
        TaskRecord, TaskState, TaskSubmitted, TaskUnblocked,
    },
};

use super::{
    CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite,
    lease_ends::lease_status::lease_lost_reason, user_commands::cancel::cancel,
};

/// Delegates `child` on behalf of the current run, by the holder of `epoch`.
///
/// # Errors
/// Rejected if the caller no longer holds the lease, the child does not belong to the current run, or too
/// many children are unfinished.
pub fn delegate(
    record: &TaskRecord,
    epoch: Epoch,
    child: TaskId,
    submitted: TaskSubmitted,
) -> Result<CommandPlan, CommandRejection> {
    let lost = |why| CommandRejection::LeaseLost { asked: epoch, current: record.epoch, why };
    if let Some(why) = lease_lost_reason(record, epoch) {
        return Err(lost(why));
    }
    let Some(by) = submitted.delegated_by.clone().filter(|by| record.run == Some(by.run)) else {
        return Err(lost(LeaseLostReason::Ended));
    };
    if record.waits_for.contains(&child) {
        // Sent again. The store compares the child with the existing one.
        return Ok(CommandPlan {
            delegated_task: Some((child, Box::new(submitted))),
            ..CommandPlan::default()
        });
    }
    if record.waits_for.len() >= DEPENDENCIES_MAX {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "it waits for as many tasks as one may; let some of them end first",
        });
    }
    let delegated = Delegated { call: by.call.clone(), child };
    Ok(CommandPlan {
        task_events: vec![TaskDelegated { run: by.run, call: by.call, child }.into()],
        run_write: Some(RunWrite {
            run: by.run,
            condition: RunCondition::AtHead,
            events: vec![RunEvent::from(delegated).encode(Turn(0))],
            fence: FenceAfter::Unchanged,
        }),
        delegated_task: Some((child, Box::new(submitted))),
        ..CommandPlan::default()
    })
}

/// Plans the parent's reaction to the end of a child: its run receives the answer, and the task resumes if it
/// is blocked on its children and this was the last one. Empty if the parent does not wait for the child.
pub fn child_ended(parent: &TaskRecord, child: &TaskRecord) -> CommandPlan {
    let Some(by) = &child.delegated_by else { return CommandPlan::default() };
    let waits = by.task == parent.id && parent.run == Some(by.run) && parent.waits_for.contains(&child.id);
    if !waits || !child.state.is_ended() {
        return CommandPlan::default();
    }
    let more = parent.waits_for.len() > 1;
    let mut task: Vec<TaskEvent> = vec![TaskDependencyEnded { on: child.id, state: child.state }.into()];
    if !more && parent.blocked_why == Some(TaskBlockedReason::Child) {
        task.push(TaskUnblocked {}.into());
    }
    let words = match (&child.message, child.state) {
        (Some(message), TaskState::Cancelled | TaskState::Discarded) => {
            format!("The child task was {}: {message}", child.state)
        }
        (Some(_) | None, state) => format!("The child task is {state}."),
    };
    let answered = ChildAnswered {
        call: by.call.clone(),
        child: child.id,
        content: words.into(),
        is_error: child.state != TaskState::Completed,
        run: child.last_run,
        more,
    };
    CommandPlan {
        task_events: task,
        run_write: Some(RunWrite {
            run: by.run,
            condition: RunCondition::AtHead,
            events: vec![RunEvent::from(answered).encode(Turn(0))],
            fence: FenceAfter::Unchanged,
        }),
        ..CommandPlan::default()
    }
}

/// Plans the cancellation of a child whose parent no longer waits for it, since nothing would use its answer.
/// Empty if it is not a child of that parent or has ended.
pub fn cancel_abandoned_child(child: &TaskRecord, parent: &TaskRecord) -> CommandPlan {
    let is_child = child.delegated_by.as_ref().is_some_and(|by| by.task == parent.id);
    if !is_child || child.state.is_ended() || parent.waits_for.contains(&child.id) {
        return CommandPlan::default();
    }
    let reason = match parent.state {
        TaskState::Cancelled => format!("task {}, which gave it away, was cancelled", parent.id),
        _ => format!("task {} goes on without the run that gave it away", parent.id),
    };
    cancel(child, BY_PARENT, &reason).unwrap_or_default()
}
