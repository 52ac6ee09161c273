//! Children: made with the event of the run that gives them away, and ended with the run that no longer waits.

use std::collections::HashSet;

use docket_schema::{
    event::TypedEvent as _,
    ids::{Epoch, StreamId, TaskId, Timestamp, Turn},
    task::{TaskEvent, TaskEventMeta, TaskRecord, TaskSubmitted},
};

use super::{
    command::{Execution, draft_plan},
    known_task::check_same_child,
};
use crate::{
    decide,
    store::{
        CommandError, TakenId,
        conn::Conn,
        desk::{Deadline, Desk, Draft, LoadError, Waits, corrupt},
    },
};

/// Drafts the task that a run gives away; `false` = it exists already, with the same content.
pub(super) async fn draft_child(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    (child, submitted): (TaskId, &TaskSubmitted),
    now: Timestamp,
) -> Result<Result<bool, Box<TakenId>>, LoadError> {
    let stream = StreamId::Task(child);
    desk.load_tasks(conn, &[child]).await?;
    if let Some((record, _)) = desk.tasks.get(&child) {
        let existing = (&record.spec, record.delegated_by.as_ref());
        return Ok(check_same_child(child, existing, submitted).map(|()| false));
    }
    let mut row = desk.new_stream(conn).await?;
    let stream_id = row.id;
    let first = TaskEvent::from(submitted.clone()).encode(Turn(0));
    draft.extend(&stream, &mut row, &[first], Epoch(0), now);
    let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
    let record = TaskRecord::submitted(child, meta, submitted.clone());
    draft.streams.push((stream, row));
    draft.tasks.push((record, stream_id, Deadline::Keep));
    Ok(Ok(true))
}

/// Cancels the children of runs that this batch has ended or left behind; answers those.
pub(super) async fn cancel_abandoned(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    now: Timestamp,
) -> Result<Vec<TaskId>, LoadError> {
    let has_ended =
        |desk: &Desk, id: &TaskId| desk.tasks.get(id).is_some_and(|(record, _)| record.state.is_ended());
    let left = desk.staged.dependencies.iter().filter(|(_, waits)| **waits == Waits::Ends);
    let left: Vec<(TaskId, TaskId)> =
        left.map(|(pair, _)| *pair).filter(|(child, _)| !has_ended(desk, child)).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let children: Vec<TaskId> = left.iter().map(|(child, _)| *child).collect();
    desk.load_tasks(conn, &children).await?;
    let mut cancelled = HashSet::new();
    for (child, parent) in left {
        let (Some((record, _)), Some((parent, _))) = (desk.tasks.get(&child), desk.tasks.get(&parent)) else {
            continue;
        };
        let plan = decide::abandoned(record, parent);
        if plan.task.is_empty() {
            continue;
        }
        let mut draft = Draft::default();
        match draft_plan(desk, conn, &mut draft, child, plan, Execution::at(now)).await? {
            Ok(_) => {
                desk.accept(draft);
                cancelled.insert(child);
            }
            Err(CommandError::Store(error)) => return Err(error.into()),
            Err(refused) => {
                return Err(corrupt(format!("child {child} cannot be cancelled: {refused}")).into());
            }
        }
    }
    Ok(cancelled.into_iter().collect())
}
