//! Tasks that wait for others: what an end sets free goes on in the same transaction.

use std::collections::HashMap;

use docket_schema::{
    ids::{TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use uuid::Uuid;

use super::command::{Execution, draft_plan, draft_task};
use crate::{
    decide,
    store::{
        AppendError, CommandError, NewTask, StoreError,
        conn::{Arg, Conn, Dialect},
        desk::{Desk, Draft, LoadError, Waits, corrupt},
    },
};

/// Lets go on what waited for tasks that this batch has ended, and for those that this ends in turn.
pub(super) async fn set_free(desk: &mut Desk, conn: &mut Conn<'_>, now: Timestamp) -> Result<(), LoadError> {
    let has_ended =
        |desk: &Desk, id: &TaskId| desk.tasks.get(id).is_some_and(|(record, _)| record.state.is_ended());
    let mut ended: Vec<TaskId> = desk.staged.tasks.keys().filter(|id| has_ended(desk, id)).copied().collect();
    // Each level of a chain is looked at once, however long the chain is.
    while !ended.is_empty() {
        let mut next = Vec::new();
        for (on, task) in waiting(desk, conn, &ended).await? {
            let state = desk.tasks.get(&on).map(|(record, _)| record.state);
            let (Some(state), Some((record, _))) = (state, desk.tasks.get(&task)) else { continue };
            let plan = decide::dependency_ended(record, on, state);
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

/// How the tasks that new ones wait for stand; those that none knows are missing. On PostgreSQL they cannot end
/// before the commit, so that whoever ends them finds who waits.
pub(super) async fn load_states(
    desk: &Desk,
    conn: &mut Conn<'_>,
    tasks: &[NewTask],
) -> Result<HashMap<TaskId, TaskState>, LoadError> {
    let mut wanted: Vec<TaskId> =
        tasks.iter().flat_map(|task| task.spec.conditions.after.iter().copied()).collect();
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
    // What this batch did to them is not in the database yet.
    for id in wanted {
        if let Some((record, _)) = desk.tasks.get(&id) {
            states.insert(id, record.state);
        }
    }
    Ok(states)
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
        draft_task(desk, draft, record, &plan.task, docket_schema::ids::Epoch(0), now)?;
        if record.state.is_ended() {
            break;
        }
    }
    Ok(Ok(()))
}
