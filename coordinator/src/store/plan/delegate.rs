//! Delegated tasks: created with the event of the run that delegates them, and cancelled when that run ends
//! or no longer waits.

use std::collections::HashSet;

use docket_schema::{
    ids::{TaskId, Timestamp},
    task::TaskSubmitted,
};

use super::{
    command::{PlanExecution, stage_plan, stage_submitted},
    known_task::check_same_child,
};
use crate::{
    decide,
    store::{
        CommandError, TaskIdConflict,
        api::corrupt_error,
        db::{DbConn, TransactionError},
        writer::{DeadlineChange, DependencyChange, StagedRequest, WorkingSet},
    },
};

/// Stages the task that a run delegates; returns `false` if it already exists with the same content.
pub(super) async fn stage_child(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    (child, submitted): (TaskId, &TaskSubmitted),
    now: Timestamp,
) -> Result<Result<bool, Box<TaskIdConflict>>, TransactionError> {
    set.load_tasks(conn, &[child]).await?;
    if let Some((record, _)) = set.tasks.get(&child) {
        let existing = (&record.spec, record.delegated_by.as_ref());
        return Ok(check_same_child(child, existing, submitted).map(|()| false));
    }
    let (record, stream_id) = stage_submitted(set, conn, staged, child, submitted, now).await?;
    staged.tasks.push((record, stream_id, DeadlineChange::Keep));
    Ok(Ok(true))
}

/// Cancels the children of runs that this batch ended or abandoned; returns those.
pub(super) async fn cancel_abandoned_children(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    now: Timestamp,
) -> Result<Vec<TaskId>, TransactionError> {
    let has_ended =
        |set: &WorkingSet, id: &TaskId| set.tasks.get(id).is_some_and(|(record, _)| record.state.is_ended());
    let left = set.writes.dependencies.iter().filter(|(_, waits)| **waits == DependencyChange::Removed);
    let left: Vec<(TaskId, TaskId)> =
        left.map(|(pair, _)| *pair).filter(|(child, _)| !has_ended(set, child)).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let children: Vec<TaskId> = left.iter().map(|(child, _)| *child).collect();
    set.load_tasks(conn, &children).await?;
    let mut cancelled = HashSet::new();
    for (child, parent) in left {
        let (Some((record, _)), Some((parent, _))) = (set.tasks.get(&child), set.tasks.get(&parent)) else {
            continue;
        };
        let plan = decide::cancel_abandoned_child(record, parent);
        if plan.task_events.is_empty() {
            continue;
        }
        let mut staged = StagedRequest::default();
        match stage_plan(set, conn, &mut staged, child, plan, PlanExecution::new(now)).await? {
            Ok(_) => {
                set.merge_staged(staged);
                cancelled.insert(child);
            }
            Err(CommandError::Store(error)) => return Err(error.into()),
            Err(refused) => {
                return Err(corrupt_error(format!("child {child} cannot be cancelled: {refused}")).into());
            }
        }
    }
    Ok(cancelled.into_iter().collect())
}
