//! Reads of batches, counted with the index of their tasks.

use docket_schema::{
    api::{
        BATCH_MESSAGES_MAX, BATCHES_MAX, BatchBudget, BatchList, BatchSummary, BatchView, BlockedCount,
        MessageCount, OldestRunning, StateCount,
    },
    ids::{BatchId, TaskId, Timestamp},
    system::BatchSpending,
    task::TaskState,
};

use super::budgets::read_batch_budget;
use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{
        DbPool, SqlArg, SqlRow,
        row::{TASK_COLUMNS, TASK_TABLES, parse_blocked_reason, read_task_row},
    },
};

const DOING: &str = "counting a batch";

/// Newest tasks whose batches are listed.
const NEWEST_TASKS: i64 = 20_000;

/// Most batches reported as depending on one task.
const DEPENDENT_BATCHES_MAX: i64 = 100;

/// Reads the state of a batch; `None` if it has no task.
pub(crate) async fn read_batch(db: &DbPool, id: BatchId) -> Result<Option<BatchView>, StoreError> {
    let sql = "SELECT state, count(*), CAST(sum(runs) AS bigint), CAST(sum(failures) AS bigint), \
               CAST(sum(crashes) AS bigint), min(submitted_at), max(submitted_at), min(ended_at), max(ended_at), \
               CAST(sum(archived) AS bigint), blocked_why FROM \
               (SELECT state, runs, failures, crashes, submitted_at, ended_at, 0 AS archived, blocked_why FROM tasks \
                WHERE batch = $1 UNION ALL \
                SELECT state, runs, failures, crashes, submitted_at, ended_at, 1 AS archived, NULL FROM archived_streams \
                WHERE batch = $1) t GROUP BY state, blocked_why ORDER BY state, blocked_why";
    let mut view = BatchView {
        id,
        name: None,
        tasks: 0,
        archived: 0,
        states: Vec::new(),
        blocked: Vec::new(),
        behind_failed: 0,
        behind_children: 0,
        behind_blocked: 0,
        budget: BatchBudget::default(),
        used: BatchSpending::default(),
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
    for row in &mut db.query(DOING, sql, vec![SqlArg::from_uuid(id.0)]).await? {
        let word = row.get_text(0)?;
        let corrupt = |_| corrupt_error(format!("a task in state `{word}`"));
        let state: TaskState = word.parse().map_err(corrupt)?;
        let count = row.get_u64(1)?;
        match view.states.iter_mut().find(|of| of.state == state) {
            Some(of) => of.count += count,
            None => view.states.push(StateCount { state, count }),
        }
        if let Some(word) = row.get_text_or_null(10)? {
            view.blocked.push(BlockedCount { why: parse_blocked_reason(&word)?, count });
        }
        view.tasks += count;
        view.runs += row.get_u64(2)?;
        view.failures += row.get_u64(3)?;
        view.crashes += row.get_u64(4)?;
        view.first_submitted_at = view.first_submitted_at.min(Timestamp(row.get_i64(5)?));
        view.last_submitted_at = view.last_submitted_at.max(Timestamp(row.get_i64(6)?));
        let first = row.get_i64_or_null(7)?.map(Timestamp);
        view.first_ended_at = view.first_ended_at.into_iter().chain(first).min();
        view.archived += row.get_u64(9)?;
        view.last_ended_at = view.last_ended_at.max(row.get_i64_or_null(8)?.map(Timestamp));
    }
    if view.tasks == 0 {
        return Ok(None);
    }
    view.states.sort_unstable_by_key(|count| count.state);
    if view.states.iter().any(|of| of.state == TaskState::Pending) {
        [view.behind_failed, view.behind_blocked, view.behind_children] = count_held_back(db, id).await?;
    }
    (view.budget, view.used) = read_batch_budget(db, id).await?;
    view.name = read_batch_name(db, id).await?;
    view.messages = count_messages(db, id).await?;
    view.oldest_running = find_oldest_running(db, id).await?;
    Ok(Some(view))
}

/// Counts pending tasks that depend, directly or not, on a failed task, on a task that waits for a person, or
/// on a task of this batch that waits for its children; each counts once, for the first of these. Children
/// belong to their parent's batch: those of another batch may be active, which cannot be seen here. The cost
/// is proportional to the unfinished dependencies.
async fn count_held_back(db: &DbPool, id: BatchId) -> Result<[u64; 3], StoreError> {
    let sql = "WITH RECURSIVE held(id, after) AS (\
                 SELECT d.task, CASE WHEN o.state <> 'blocked' THEN 0 WHEN o.blocked_why = 'child' THEN 2 ELSE 1 END \
                 FROM task_dependencies d JOIN tasks o ON o.id = d.dependency JOIN tasks t ON t.id = d.task \
                 WHERE t.state = 'pending' AND (o.state IN ('cancelled', 'discarded') \
                 OR o.blocked_why IN ('person', 'paused', 'provider', 'budget', 'worker_fault') \
                 OR (o.blocked_why = 'child' AND o.batch = $1)) \
                 UNION \
                 SELECT d.task, h.after FROM held h JOIN task_dependencies d ON d.dependency = h.id \
                 JOIN tasks t ON t.id = d.task WHERE t.state = 'pending') \
               SELECT first, count(*) FROM (SELECT h.id, min(h.after) AS first FROM held h \
               JOIN tasks t ON t.id = h.id WHERE t.batch = $1 GROUP BY h.id) each GROUP BY first ORDER BY first";
    let mut held = [0; 3];
    for row in &mut db.query(DOING, sql, vec![SqlArg::from_uuid(id.0)]).await? {
        if let Some(count) = usize::try_from(row.get_i64(0)?).ok().and_then(|nth| held.get_mut(nth)) {
            *count = row.get_u64(1)?;
        }
    }
    Ok(held)
}

/// Lists the batches of tasks that depend on this one, directly or not: the first [`DEPENDENT_BATCHES_MAX`].
pub(crate) async fn list_dependent_batches(db: &DbPool, task: TaskId) -> Result<Vec<BatchId>, StoreError> {
    const DOING: &str = "reading which batches depend on a task";
    let sql = "WITH RECURSIVE behind(id) AS (\
                 SELECT task FROM task_dependencies WHERE dependency = $1 \
                 UNION SELECT d.task FROM behind b JOIN task_dependencies d ON d.dependency = b.id) \
               SELECT DISTINCT t.batch FROM behind b JOIN tasks t ON t.id = b.id \
               WHERE t.state = 'pending' AND t.batch IS NOT NULL ORDER BY t.batch LIMIT $2";
    let args = vec![SqlArg::from_uuid(task.0), SqlArg::Int(DEPENDENT_BATCHES_MAX)];
    let found = db.query(DOING, sql, args).await?;
    found.into_iter().map(|mut row| Ok(BatchId(row.get_uuid(0)?))).collect()
}

/// Reads the batch's name as its newest task has it.
async fn read_batch_name(db: &DbPool, id: BatchId) -> Result<Option<String>, StoreError> {
    let sql =
        format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE t.batch = $1 ORDER BY t.id DESC LIMIT 1");
    let mut newest = db.query(DOING, &sql, vec![SqlArg::from_uuid(id.0)]).await?;
    if let Some((task, _)) = newest.first_mut().map(read_task_row).transpose()? {
        return Ok(task.spec.batch_name);
    }
    let sql = "SELECT batch_name FROM archived_streams WHERE batch = $1 ORDER BY id DESC LIMIT 1";
    let mut newest = db.query(DOING, sql, vec![SqlArg::from_uuid(id.0)]).await?;
    Ok(newest.first_mut().map(|row| row.get_text_or_null(0)).transpose()?.flatten())
}

async fn count_messages(db: &DbPool, id: BatchId) -> Result<Vec<MessageCount>, StoreError> {
    let sql = "SELECT message, count(*) FROM tasks WHERE batch = $1 AND message IS NOT NULL \
               GROUP BY message ORDER BY count(*) DESC, message LIMIT $2";
    let most = i64::try_from(BATCH_MESSAGES_MAX).unwrap_or(i64::MAX);
    let mut messages = Vec::new();
    for row in &mut db.query(DOING, sql, vec![SqlArg::from_uuid(id.0), SqlArg::Int(most)]).await? {
        let (message, count) = (row.get_text(0)?, row.get_u64(1)?);
        let sql = "SELECT id FROM tasks WHERE batch = $1 AND message = $2 ORDER BY id LIMIT 1";
        let args = vec![SqlArg::from_uuid(id.0), SqlArg::Text(message.clone())];
        // The setting may have changed since.
        if let Some(row) = db.query(DOING, sql, args).await?.first_mut() {
            messages.push(MessageCount { message, count, task: TaskId(row.get_uuid(0)?) });
        }
    }
    Ok(messages)
}

async fn find_oldest_running(db: &DbPool, id: BatchId) -> Result<Option<OldestRunning>, StoreError> {
    let sql = "SELECT t.id, e.recorded_at FROM tasks t JOIN runs r ON r.id = t.run \
               JOIN events e ON e.stream_id = r.stream_id AND e.seq = 1 \
               WHERE t.batch = $1 AND t.state = 'running' ORDER BY e.recorded_at, t.id LIMIT 1";
    let mut found = db.query(DOING, sql, vec![SqlArg::from_uuid(id.0)]).await?;
    let oldest = |row: &mut SqlRow| {
        Ok(OldestRunning { task: TaskId(row.get_uuid(0)?), since: Timestamp(row.get_i64(1)?) })
    };
    found.first_mut().map(oldest).transpose()
}

/// Lists the batches of the newest tasks.
pub(crate) async fn list_batches(db: &DbPool) -> Result<BatchList, StoreError> {
    const DOING: &str = "listing batches";
    let sql = "SELECT DISTINCT batch FROM (SELECT batch FROM tasks ORDER BY id DESC LIMIT $1) newest \
               WHERE batch IS NOT NULL \
               UNION SELECT batch FROM (SELECT batch FROM archived_streams ORDER BY id DESC LIMIT $1) gone \
               WHERE batch IS NOT NULL";
    let mut batches = Vec::new();
    for row in &mut db.query(DOING, sql, vec![SqlArg::Int(NEWEST_TASKS)]).await? {
        let id = BatchId(row.get_uuid(0)?);
        let newest = "SELECT max(at) FROM (SELECT max(submitted_at) AS at FROM tasks WHERE batch = $1 UNION ALL \
                      SELECT max(submitted_at) AS at FROM archived_streams WHERE batch = $1) t";
        let at = db.query(DOING, newest, vec![SqlArg::from_uuid(id.0)]).await?;
        let at = at.first().map(|row| row.get_i64_or_null(0)).transpose()?.flatten();
        batches.extend(at.map(|at| (Timestamp(at), id)));
    }
    batches.sort_unstable_by(|a, b| b.cmp(a));
    let more = batches.len() > BATCHES_MAX;
    let mut list = Vec::new();
    for (last_submitted_at, id) in batches.into_iter().take(BATCHES_MAX) {
        let sql = "SELECT count(*), count(ended_at) FROM (SELECT ended_at FROM tasks WHERE batch = $1 UNION ALL \
                   SELECT ended_at FROM archived_streams WHERE batch = $1) t";
        let mut counts = db.query(DOING, sql, vec![SqlArg::from_uuid(id.0)]).await?;
        let Some(row) = counts.first_mut() else { continue };
        let (tasks, ended) = (row.get_u64(0)?, row.get_u64(1)?);
        list.push(BatchSummary { id, name: read_batch_name(db, id).await?, tasks, ended, last_submitted_at });
    }
    Ok(BatchList { batches: list, more })
}
