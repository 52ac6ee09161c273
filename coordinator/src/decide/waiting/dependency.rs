//! `dependency_ended`: a task that another waits for has ended.

use docket_schema::{
    ids::TaskId,
    task::{
        BY_DEPENDENCY, DependencyFailurePolicy, TaskCancelled, TaskDependencyEnded, TaskRecord, TaskState,
    },
};

use crate::decide::CommandPlan;

/// What becomes of a task that waits for `on`, which is `state` now: it goes on, is cancelled, or goes on waiting, as
/// it was asked for at its submit. Nothing where it does not wait for it.
pub fn dependency_ended(record: &TaskRecord, on: TaskId, state: TaskState) -> CommandPlan {
    let if_failed = record.spec.conditions.if_failed;
    if !state.is_ended() || !record.waits_for.contains(&on) || if_failed.is_blocked_by(state) {
        return CommandPlan::default();
    }
    let event = match (state, if_failed) {
        (TaskState::Cancelled | TaskState::Discarded, DependencyFailurePolicy::Cancel) => {
            let reason = format!("task {on}, which it waits for, was {state}");
            TaskCancelled { by: BY_DEPENDENCY.to_owned(), reason }.into()
        }
        _ => TaskDependencyEnded { on, state }.into(),
    };
    CommandPlan { task_events: vec![event], ..CommandPlan::default() }
}

/// Whether a task that is retried has to wait for `on` again. One that failed keeps it back even where its failure
/// would have cancelled it: that has happened, and it is wanted all the same, once that one is completed.
pub fn renew_dependency(record: &TaskRecord, on: TaskId, state: TaskState) -> CommandPlan {
    match record.spec.conditions.if_failed {
        DependencyFailurePolicy::Cancel if state != TaskState::Completed => CommandPlan::default(),
        DependencyFailurePolicy::Cancel | DependencyFailurePolicy::Hold | DependencyFailurePolicy::Run => {
            dependency_ended(record, on, state)
        }
    }
}
