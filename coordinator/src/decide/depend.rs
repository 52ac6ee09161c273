//! `dependency_ended`: a task that another waits for has ended.

use docket_schema::{
    ids::TaskId,
    task::{IfFailed, TaskCancelled, TaskDependencyEnded, TaskRecord, TaskState},
};

use super::Plan;

/// Who cancels what waits for a task that failed.
pub const BY_DEPENDENCY: &str = "dependency";

/// What becomes of a task that waits for `on`, which is `state` now: it goes on, is cancelled, or goes on waiting, as
/// it was asked for at its submit. Nothing where it does not wait for it.
pub fn dependency_ended(record: &TaskRecord, on: TaskId, state: TaskState) -> Plan {
    let if_failed = record.spec.conditions.if_failed;
    if !state.is_ended() || !record.waits_for.contains(&on) || if_failed.keeps_back(state) {
        return Plan::default();
    }
    let event = match (state, if_failed) {
        (TaskState::Cancelled | TaskState::Discarded, IfFailed::Cancel) => {
            let reason = format!("task {on}, which it waits for, was {state}");
            TaskCancelled { by: BY_DEPENDENCY.to_owned(), reason }.into()
        }
        _ => TaskDependencyEnded { on, state }.into(),
    };
    Plan { task: vec![event], ..Plan::default() }
}
