//! `dependency_ended`: a task that another depends on has ended.

use docket_schema::{
    ids::TaskId,
    task::{
        BY_DEPENDENCY, DependencyFailurePolicy, TaskCancelled, TaskDependencyEnded, TaskRecord, TaskState,
    },
};

use crate::decide::CommandPlan;

/// Plans the reaction of a task to the end of its dependency `on`, now in `state`: it becomes available, is
/// cancelled, or keeps waiting, as chosen at submit. Empty if it does not depend on it.
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

/// Whether a retried task must wait for `on` again. A failed dependency holds the task even if its failure
/// would have cancelled it: the retry shows that the task is still wanted once the dependency is completed.
pub fn renew_dependency(record: &TaskRecord, on: TaskId, state: TaskState) -> CommandPlan {
    match record.spec.conditions.if_failed {
        DependencyFailurePolicy::Cancel if state != TaskState::Completed => CommandPlan::default(),
        DependencyFailurePolicy::Cancel | DependencyFailurePolicy::Hold | DependencyFailurePolicy::Run => {
            dependency_ended(record, on, state)
        }
    }
}
