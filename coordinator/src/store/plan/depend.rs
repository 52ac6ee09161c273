//! Tasks that wait for others: what an end sets free goes on in the same transaction.

use std::collections::HashMap;

use docket_schema::{
    ids::{Epoch, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use uuid::Uuid;

use super::{
    command::{Execution, draft_plan, draft_task},
    delegate::cancel_abandoned,
};
use crate::{
    decide,
    store::{
        AppendError, CommandError, NewTask, StoreError, archived_tasks,
        conn::{Arg, Conn, Dialect},
        desk::{Desk, Draft, LoadError, Waits, corrupt},
    },
};

/// Lets go on what waited for tasks that this batch has ended, and for those that this ends in turn.
pub(super) async fn set_free(desk: &mut Desk, conn: &mut Conn<'_>, now: Timestamp) -> Result<(), LoadError> {
    let has_ended =
        |desk: &Desk, id: &TaskId| desk.tasks.get(id).is_some_and(|(record, _)| record.state.is_ended());
    let mut ended: Vec<TaskId> = desk.staged.tasks.keys().filter(|id| has_ended(desk, id)).copied().collect();
    ended.extend(cancel_abandoned(desk, conn, now).await?);
    // Each level of a chain is looked at once, however long the chain is.
    while !ended.is_empty() {
        let mut next = Vec::new();
        for (on, task) in waiting(desk, conn, &ended).await? {
            let (Some((over, _)), Some((record, _))) = (desk.tasks.get(&on), desk.tasks.get(&task)) else {
                continue;
            };
            let plan = match &over.delegated_by {
                Some(by) if by.task == task => decide::child_ended(record, over),
                Some(_) | None => decide::dependency_ended(record, on, over.state),
            };
            if plan.task.is_empty() {
                continue;
            }
            let mut draft = Draft::default();
            match draft_plan(desk, conn, &mut draft, task, plan, Execution::at(now)).await? {
                Ok(_) => {
                    desk.accept(draft);
                    next.extend(has_ended(desk, &task).then_some(task));
                }
                Err(CommandError::Store(error)) => return Err(error.into()),
                Err(refused) => {
                    return Err(corrupt(format!("task {task} cannot go on after {on}: {refused}")).into());
                }
            }
        }
        next.extend(cancel_abandoned(desk, conn, now).await?);
        ended = next;
    }
    Ok(())
}

/// Who waits for these: each pair of the task that ended and the one that waits, which is loaded.
async fn waiting(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    ended: &[TaskId],
) -> Result<Vec<(TaskId, TaskId)>, LoadError> {
    let sql = format!(
        "SELECT dependency, task FROM task_dependencies WHERE {} ORDER BY task",
        conn.dialect().any_blob("dependency", 1)
    );
    let ids = ended.iter().map(|id| id.0.as_bytes().to_vec()).collect();
    let mut pairs = Vec::new();
    for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
        let id = |bytes| TaskId(Uuid::from_bytes(bytes));
        pairs.push((id(row.fixed(0)?), id(row.fixed(1)?)));
    }
    let (first, last) = (TaskId(Uuid::nil()), TaskId(Uuid::max()));
    for on in ended {
        let of_it = desk.staged.dependencies.range((*on, first)..=(*on, last));
        pairs.extend(of_it.filter(|(_, waits)| **waits == Waits::Begins).map(|(pair, _)| *pair));
    }
    let tasks: Vec<TaskId> = pairs.iter().map(|(_, task)| *task).collect();
    if !tasks.is_empty() {
        desk.load_tasks(conn, &tasks).await?;
    }
    Ok(pairs)
}

/// How the tasks that new ones wait for stand.
pub(super) async fn load_states(
    desk: &Desk,
    conn: &mut Conn<'_>,
    tasks: &[NewTask],
) -> Result<HashMap<TaskId, TaskState>, LoadError> {
    let wanted = tasks.iter().flat_map(|task| task.spec.conditions.after.iter().copied()).collect();
    states_of(desk, conn, wanted).await
}

/// How tasks stand; those that none knows are missing. On PostgreSQL they cannot end before the commit, so that
/// whoever ends them finds who waits.
async fn states_of(
    desk: &Desk,
    conn: &mut Conn<'_>,
    mut wanted: Vec<TaskId>,
) -> Result<HashMap<TaskId, TaskState>, LoadError> {
    wanted.sort_unstable();
    wanted.dedup();
    let mut states = HashMap::new();
    if wanted.is_empty() {
        return Ok(states);
    }
    let lock = match conn.dialect() {
        Dialect::Sqlite => "",
        Dialect::Postgres => " FOR SHARE",
    };
    let sql =
        format!("SELECT id, state FROM tasks WHERE {} ORDER BY id{lock}", conn.dialect().any_blob("id", 1));
    let ids = wanted.iter().map(|id| id.0.as_bytes().to_vec()).collect();
    for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
        let id = TaskId(Uuid::from_bytes(row.fixed(0)?));
        let state = row.text(1)?.parse().map_err(|_| corrupt(format!("task {id}: its state")))?;
        states.insert(id, state);
    }
    // One that ended long ago has gone to the archive: how it ended stands in its place.
    let absent: Vec<TaskId> = wanted.iter().filter(|id| !states.contains_key(id)).copied().collect();
    if !absent.is_empty() {
        states.extend(archived_tasks::states(conn, absent).await?);
    }
    // What this batch did to them is not in the database yet.
    for id in wanted {
        if let Some((record, _)) = desk.tasks.get(&id) {
            states.insert(id, record.state);
        }
    }
    Ok(states)
}

/// A task that is retried waits again for what it was to come after, but for what keeps it back no more. `Some` = a
/// task that nobody knows here.
pub(super) async fn draft_waiting_again(
    desk: &Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    record: &mut TaskRecord,
    now: Timestamp,
) -> Result<Option<TaskId>, LoadError> {
    let waits_for = record.waits_for.clone();
    let states = states_of(desk, conn, waits_for.clone()).await?;
    for on in waits_for {
        let Some(state) = states.get(&on) else { return Ok(Some(on)) };
        let plan = decide::dependency_stands(record, on, *state);
        draft_task(desk, draft, record, &plan.task, Epoch(0), now)?;
    }
    Ok(None)
}

/// What a new task waits for may have ended already.
pub(super) fn draft_ended(
    desk: &Desk,
    draft: &mut Draft,
    record: &mut TaskRecord,
    states: &HashMap<TaskId, TaskState>,
    now: Timestamp,
) -> Result<Result<(), AppendError>, StoreError> {
    for on in record.waits_for.clone() {
        let Some(state) = states.get(&on) else { return Ok(Err(AppendError::NoDependency(on))) };
        let plan = decide::dependency_ended(record, on, *state);
        draft_task(desk, draft, record, &plan.task, Epoch(0), now)?;
        if record.state.is_ended() {
            break;
        }
    }
    Ok(Ok(()))
}
