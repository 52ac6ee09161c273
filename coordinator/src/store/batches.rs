//! How batches stand, counted by the index of their tasks.

use docket_schema::{
    ids::{BatchId, TaskId, Timestamp},
    task::TaskState,
    wire::{
        BATCH_MESSAGES_MAX, BATCHES_MAX, BatchList, BatchSummary, BatchView, MessageCount, OldestRunning,
        StateCount,
    },
};
use uuid::Uuid;

use super::{
    StoreError,
    conn::{Arg, Db, Row},
    read::rows,
    row::{TASK_COLUMNS, TASK_TABLES, task_row},
};

const DOING: &str = "counting a batch";

/// Newest tasks whose batches are listed.
const NEWEST_TASKS: i64 = 20_000;

fn batch_arg(batch: BatchId) -> Arg {
    Arg::Blob(batch.0.as_bytes().to_vec())
}

fn task_id(row: &mut Row, at: usize) -> Result<TaskId, StoreError> {
    Ok(TaskId(Uuid::from_bytes(row.fixed(at)?)))
}

/// How a batch stands; `None` where it has no task.
pub(super) async fn batch(db: &Db, id: BatchId) -> Result<Option<BatchView>, StoreError> {
    let sql = "SELECT state, count(*), CAST(sum(runs) AS bigint), CAST(sum(failures) AS bigint), \
               CAST(sum(crashes) AS bigint), min(submitted_at), max(submitted_at), min(ended_at), max(ended_at) \
               FROM tasks WHERE batch = $1 GROUP BY state ORDER BY state";
    let mut view = BatchView {
        id,
        name: None,
        tasks: 0,
        states: Vec::new(),
        runs: 0,
        failures: 0,
        crashes: 0,
        messages: Vec::new(),
        oldest_running: None,
        first_submitted_at: Timestamp(i64::MAX),
        last_submitted_at: Timestamp(i64::MIN),
        first_ended_at: None,
        last_ended_at: None,
    };
    for row in &mut rows(db, DOING, sql, vec![batch_arg(id)]).await? {
        let word = row.text(0)?;
        let corrupt = |_| StoreError::Corrupt { what: format!("a task in state `{word}`") };
        let state: TaskState = word.parse().map_err(corrupt)?;
        let count = row.count(1)?;
        view.states.push(StateCount { state, count });
        view.tasks += count;
        view.runs += row.count(2)?;
        view.failures += row.count(3)?;
        view.crashes += row.count(4)?;
        view.first_submitted_at = view.first_submitted_at.min(Timestamp(row.int(5)?));
        view.last_submitted_at = view.last_submitted_at.max(Timestamp(row.int(6)?));
        let first = row.int_or_null(7)?.map(Timestamp);
        view.first_ended_at = view.first_ended_at.into_iter().chain(first).min();
        view.last_ended_at = view.last_ended_at.max(row.int_or_null(8)?.map(Timestamp));
    }
    if view.tasks == 0 {
        return Ok(None);
    }
    view.states.sort_unstable_by_key(|count| count.state);
    view.name = name(db, id).await?;
    view.messages = messages(db, id).await?;
    view.oldest_running = oldest_running(db, id).await?;
    Ok(Some(view))
}

/// What its newest task calls it.
async fn name(db: &Db, id: BatchId) -> Result<Option<String>, StoreError> {
    let sql =
        format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE t.batch = $1 ORDER BY t.id DESC LIMIT 1");
    let mut newest = rows(db, DOING, &sql, vec![batch_arg(id)]).await?;
    Ok(newest.first_mut().map(task_row).transpose()?.and_then(|(task, _)| task.spec.batch_name))
}

async fn messages(db: &Db, id: BatchId) -> Result<Vec<MessageCount>, StoreError> {
    let sql = "SELECT message, count(*) FROM tasks WHERE batch = $1 AND message IS NOT NULL \
               GROUP BY message ORDER BY count(*) DESC, message LIMIT $2";
    let most = i64::try_from(BATCH_MESSAGES_MAX).unwrap_or(i64::MAX);
    let mut messages = Vec::new();
    for row in &mut rows(db, DOING, sql, vec![batch_arg(id), Arg::Int(most)]).await? {
        let (message, count) = (row.text(0)?, row.count(1)?);
        let sql = "SELECT id FROM tasks WHERE batch = $1 AND message = $2 ORDER BY id LIMIT 1";
        let args = vec![batch_arg(id), Arg::Text(message.clone())];
        // It may say something else by now.
        if let Some(row) = rows(db, DOING, sql, args).await?.first_mut() {
            messages.push(MessageCount { message, count, task: task_id(row, 0)? });
        }
    }
    Ok(messages)
}

async fn oldest_running(db: &Db, id: BatchId) -> Result<Option<OldestRunning>, StoreError> {
    let sql = "SELECT t.id, e.recorded_at FROM tasks t JOIN runs r ON r.id = t.run \
               JOIN events e ON e.stream_id = r.stream_id AND e.seq = 1 \
               WHERE t.batch = $1 AND t.state = 'running' ORDER BY e.recorded_at, t.id LIMIT 1";
    let mut found = rows(db, DOING, sql, vec![batch_arg(id)]).await?;
    let oldest = |row: &mut Row| Ok(OldestRunning { task: task_id(row, 0)?, since: Timestamp(row.int(1)?) });
    found.first_mut().map(oldest).transpose()
}

/// The batches of the newest tasks.
pub(super) async fn batches(db: &Db) -> Result<BatchList, StoreError> {
    const DOING: &str = "listing batches";
    let sql = "SELECT DISTINCT batch FROM (SELECT batch FROM tasks ORDER BY id DESC LIMIT $1) newest \
               WHERE batch IS NOT NULL";
    let mut batches = Vec::new();
    for row in &mut rows(db, DOING, sql, vec![Arg::Int(NEWEST_TASKS)]).await? {
        let id = BatchId(Uuid::from_bytes(row.fixed(0)?));
        let newest = "SELECT max(submitted_at) FROM tasks WHERE batch = $1";
        let at = rows(db, DOING, newest, vec![batch_arg(id)]).await?;
        let at = at.first().map(|row| row.int_or_null(0)).transpose()?.flatten();
        batches.extend(at.map(|at| (Timestamp(at), id)));
    }
    batches.sort_unstable_by(|a, b| b.cmp(a));
    let more = batches.len() > BATCHES_MAX;
    let mut list = Vec::new();
    for (last_submitted_at, id) in batches.into_iter().take(BATCHES_MAX) {
        let sql = "SELECT count(*), count(ended_at) FROM tasks WHERE batch = $1";
        let mut counts = rows(db, DOING, sql, vec![batch_arg(id)]).await?;
        let Some(row) = counts.first_mut() else { continue };
        let (tasks, ended) = (row.count(0)?, row.count(1)?);
        list.push(BatchSummary { id, name: name(db, id).await?, tasks, ended, last_submitted_at });
    }
    Ok(BatchList { batches: list, more })
}
