//! Task dependencies: the end of a task releases its dependents in the same transaction.

use std::collections::HashMap;

use docket_schema::{
    ids::{Epoch, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use uuid::Uuid;

use super::{
    command::{PlanExecution, stage_plan, stage_task},
    delegate::cancel_abandoned_children,
};
use crate::{
    decide,
    store::{
        AppendError, CommandError, NewTask, StoreError,
        api::corrupt_error,
        archive::read_end_states,
        db::{DbConn, SqlArg, SqlDialect, TransactionError},
        writer::{DependencyChange, StagedRequest, WorkingSet},
    },
};

/// Releases the dependents of tasks that this batch ended, and of tasks that end as a consequence.
pub(super) async fn release_dependents(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    now: Timestamp,
) -> Result<(), TransactionError> {
    let has_ended =
        |set: &WorkingSet, id: &TaskId| set.tasks.get(id).is_some_and(|(record, _)| record.state.is_ended());
    let mut ended: Vec<TaskId> = set.writes.tasks.keys().filter(|id| has_ended(set, id)).copied().collect();
    ended.extend(cancel_abandoned_children(set, conn, now).await?);
    // Each level of a chain is read once, however long the chain is.
    while !ended.is_empty() {
        let mut next = Vec::new();
        for (on, task) in load_dependents(set, conn, &ended).await? {
            let (Some((over, _)), Some((record, _))) = (set.tasks.get(&on), set.tasks.get(&task)) else {
                continue;
            };
            let plan = match &over.delegated_by {
                Some(by) if by.task == task => decide::child_ended(record, over),
                Some(_) | None => decide::dependency_ended(record, on, over.state),
            };
            if plan.task_events.is_empty() {
                continue;
            }
            let mut staged = StagedRequest::default();
            match stage_plan(set, conn, &mut staged, task, plan, PlanExecution::new(now)).await? {
                Ok(_) => {
                    set.merge_staged(staged);
                    next.extend(has_ended(set, &task).then_some(task));
                }
                Err(CommandError::Store(error)) => return Err(error.into()),
                Err(refused) => {
                    return Err(
                        corrupt_error(format!("task {task} cannot go on after {on}: {refused}")).into()
                    );
                }
            }
        }
        next.extend(cancel_abandoned_children(set, conn, now).await?);
        ended = next;
    }
    Ok(())
}

/// Loads the dependents of these tasks; returns pairs of the ended task and its dependent.
async fn load_dependents(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    ended: &[TaskId],
) -> Result<Vec<(TaskId, TaskId)>, TransactionError> {
    let sql = format!(
        "SELECT dependency, task FROM task_dependencies WHERE {} ORDER BY task",
        conn.dialect().any_blob_sql("dependency", 1)
    );
    let mut pairs = Vec::new();
    for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuids(ended.iter().map(|id| id.0))]).await? {
        pairs.push((TaskId(row.get_uuid(0)?), TaskId(row.get_uuid(1)?)));
    }
    let (first, last) = (TaskId(Uuid::nil()), TaskId(Uuid::max()));
    for on in ended {
        let of_it = set.writes.dependencies.range((*on, first)..=(*on, last));
        pairs.extend(of_it.filter(|(_, waits)| **waits == DependencyChange::Added).map(|(pair, _)| *pair));
    }
    let tasks: Vec<TaskId> = pairs.iter().map(|(_, task)| *task).collect();
    if !tasks.is_empty() {
        set.load_tasks(conn, &tasks).await?;
    }
    Ok(pairs)
}

/// Loads the states of the tasks that new ones depend on.
pub(super) async fn load_dependency_states(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    tasks: &[NewTask],
) -> Result<HashMap<TaskId, TaskState>, TransactionError> {
    let wanted = tasks.iter().flat_map(|task| task.spec.conditions.after.iter().copied()).collect();
    load_task_states(set, conn, wanted).await
}

/// Loads the states of tasks; unknown ones are missing. On PostgreSQL they are locked against ending before
/// the commit, so that their end finds the dependents.
async fn load_task_states(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    mut wanted: Vec<TaskId>,
) -> Result<HashMap<TaskId, TaskState>, TransactionError> {
    wanted.sort_unstable();
    wanted.dedup();
    let mut states = HashMap::new();
    if wanted.is_empty() {
        return Ok(states);
    }
    let lock = match conn.dialect() {
        SqlDialect::Sqlite => "",
        SqlDialect::Postgres => " FOR SHARE",
    };
    let sql = format!(
        "SELECT id, state FROM tasks WHERE {} ORDER BY id{lock}",
        conn.dialect().any_blob_sql("id", 1)
    );
    for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuids(wanted.iter().map(|id| id.0))]).await? {
        let id = TaskId(row.get_uuid(0)?);
        let state = row.get_text(1)?.parse().map_err(|_| corrupt_error(format!("task {id}: its state")))?;
        states.insert(id, state);
    }
    // A task that ended long ago may be archived: its stub has its end state.
    let absent: Vec<TaskId> = wanted.iter().filter(|id| !states.contains_key(id)).copied().collect();
    if !absent.is_empty() {
        states.extend(read_end_states(conn, absent).await?);
    }
    // Changes made by this batch are not in the database yet.
    for id in wanted {
        if let Some((record, _)) = set.tasks.get(&id) {
            states.insert(id, record.state);
        }
    }
    Ok(states)
}

/// Stages the dependencies of a retried task that it must wait for again. Returns `Some` for an unknown task.
pub(super) async fn stage_dependencies_again(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    record: &mut TaskRecord,
    now: Timestamp,
) -> Result<Option<TaskId>, TransactionError> {
    let waits_for = record.waits_for.clone();
    let states = load_task_states(set, conn, waits_for.clone()).await?;
    for on in waits_for {
        let Some(state) = states.get(&on) else { return Ok(Some(on)) };
        let plan = decide::renew_dependency(record, on, *state);
        stage_task(set, staged, record, &plan.task_events, Epoch(0), now)?;
    }
    Ok(None)
}

/// Stages the ends of dependencies that ended before the new task was submitted.
pub(super) fn stage_ended_dependencies(
    set: &WorkingSet,
    staged: &mut StagedRequest,
    record: &mut TaskRecord,
    states: &HashMap<TaskId, TaskState>,
    now: Timestamp,
) -> Result<Result<(), AppendError>, StoreError> {
    for on in record.waits_for.clone() {
        let Some(state) = states.get(&on) else { return Ok(Err(AppendError::DependencyNotFound(on))) };
        let plan = decide::dependency_ended(record, on, *state);
        stage_task(set, staged, record, &plan.task_events, Epoch(0), now)?;
        if record.state.is_ended() {
            break;
        }
    }
    Ok(Ok(()))
}
