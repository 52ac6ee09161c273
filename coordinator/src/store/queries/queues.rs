//! Reads of queues, and of the limits that hold tasks back.

use std::collections::BTreeMap;

use docket_schema::{
    api::{QueueView, StateCount},
    ids::{BatchId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{ConcurrencyLimit, Flow, TaskRecord},
};

use super::{inbox::WAITING_SQL, workers::WORKERS_SQL};
use crate::{
    decide::{WaitingGroup, WaitingTasks},
    store::{
        StoreError,
        api::corrupt_error,
        db::{DbPool, SqlArg},
    },
};

/// Queries repeated frequently regardless of ended tasks: by each scrape of `/metrics`, each autoscaler, each
/// second. A test checks that they use indexes of unfinished tasks.
pub const FREQUENT_QUERIES: [&str; 5] =
    [QUEUE_COUNTS_SQL, WAITING_GROUPS_SQL, RUNNING_KEYS_SQL, WORKERS_SQL, WAITING_SQL];

/// Most tasks counted as ahead of another; a larger number would say nothing more.
const AHEAD_COUNT_MAX: i64 = 1000;

/// Most tasks listed that share a key.
const SAME_KEY_TASKS_MAX: i64 = 100;

fn parse_queue_name(text: &str) -> Result<QueueName, StoreError> {
    text.parse().map_err(|_| corrupt_error(format!("a queue named `{text}`")))
}

/// Unfinished tasks by queue and state, using the index of states.
const QUEUE_COUNTS_SQL: &str = "SELECT queue, state, count(*), min(CASE state WHEN 'available' THEN available_at END), min(leased_at) \
               FROM tasks WHERE state IN ('pending', 'scheduled', 'available', 'running', 'retryable', 'blocked') \
               GROUP BY queue, state ORDER BY queue, state";

/// Lists every queue with settings or unfinished tasks. The cost is proportional to those tasks.
pub(crate) async fn list_queues(db: &DbPool) -> Result<Vec<QueueView>, StoreError> {
    const DOING: &str = "reading the queues";
    let mut all: BTreeMap<QueueName, QueueView> = BTreeMap::new();
    let empty = |name: QueueName| QueueView {
        name,
        settings: QueueSettings::default(),
        tasks: Vec::new(),
        oldest_available_at: None,
        oldest_leased_at: None,
    };
    for mut row in db.query(DOING, "SELECT name, paused, running_max FROM queues", Vec::new()).await? {
        let name = parse_queue_name(&row.get_text(0)?)?;
        let running_max = row.get_i64_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        let settings = QueueSettings { paused: row.get_i64(1)? != 0, running_max };
        all.insert(name.clone(), QueueView { settings, ..empty(name) });
    }
    for mut row in db.query(DOING, QUEUE_COUNTS_SQL, Vec::new()).await? {
        let name = parse_queue_name(&row.get_text(0)?)?;
        let word = row.get_text(1)?;
        let state = word.parse().map_err(|_| corrupt_error(format!("a task in state `{word}`")))?;
        let count = row.get_u64(2)?;
        let view = all.entry(name.clone()).or_insert_with(|| empty(name));
        view.tasks.push(StateCount { state, count });
        view.oldest_available_at = view.oldest_available_at.or(row.get_i64_or_null(3)?.map(Timestamp));
        view.oldest_leased_at = view.oldest_leased_at.or(row.get_i64_or_null(4)?.map(Timestamp));
    }
    Ok(all.into_values().collect())
}

/// Most flows and keys distinguished, and most batches read.
const WAITING_GROUPS_MAX: i64 = 10_000;

/// Available tasks, by flow and key.
const WAITING_GROUPS_SQL: &str = "SELECT flow, concurrency_key, min(concurrency_max), count(*) FROM tasks \
               WHERE state = 'available' AND flow > '' GROUP BY flow, concurrency_key LIMIT $1";

/// Running tasks, by key.
const RUNNING_KEYS_SQL: &str = "SELECT concurrency_key, count(*), min(concurrency_max) FROM tasks \
               WHERE state = 'running' AND concurrency_key IS NOT NULL GROUP BY concurrency_key";

/// Reads the tasks that wait for a worker and the limits that hold them back. The cost is proportional to
/// available and running tasks.
pub(crate) async fn read_waiting(db: &DbPool) -> Result<WaitingTasks, StoreError> {
    const DOING: &str = "reading waiting tasks";
    let max_of = |max: Option<i64>| max.and_then(|max| u32::try_from(max).ok()).unwrap_or(u32::MAX);
    let mut waiting = WaitingTasks::default();
    for mut row in db.query(DOING, WAITING_GROUPS_SQL, vec![SqlArg::Int(WAITING_GROUPS_MAX)]).await? {
        let text = row.get_text(0)?;
        let flow = text.parse().map_err(|_| corrupt_error(format!("a flow `{text}`")))?;
        let max = max_of(row.get_i64_or_null(2)?);
        let key = row.get_text_or_null(1)?.map(|key| ConcurrencyLimit { key, max });
        waiting.groups.push(WaitingGroup { flow, key, tasks: row.get_u64(3)? });
    }
    if waiting.groups.iter().any(|part| part.key.is_some()) {
        for mut row in db.query(DOING, RUNNING_KEYS_SQL, Vec::new()).await? {
            waiting.keys.insert(row.get_text(0)?, (row.get_u64(1)?, max_of(row.get_i64_or_null(2)?)));
        }
    }
    if waiting.groups.iter().any(|part| part.flow.batch.is_some()) {
        let sql = "SELECT batch FROM batch_budgets WHERE spent IS NOT NULL ORDER BY batch DESC LIMIT $1";
        for mut row in db.query(DOING, sql, vec![SqlArg::Int(WAITING_GROUPS_MAX)]).await? {
            waiting.spent_batches.insert(BatchId(row.get_uuid(0)?));
        }
    }
    Ok(waiting)
}

/// Counts tasks of the same flow that are ahead of an available one.
pub(crate) async fn count_ahead(db: &DbPool, record: &TaskRecord) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 'available' AND flow = $1 \
               AND (rank < $2 OR (rank = $2 AND id < $3)) LIMIT $4) before_it";
    let args = vec![
        SqlArg::Text(Flow::from_spec(&record.spec).to_string()),
        SqlArg::Int(record.lease_rank()),
        SqlArg::from_uuid(record.id.0),
        SqlArg::Int(AHEAD_COUNT_MAX),
    ];
    let found = db.query("counting tasks ahead of one", sql, args).await?;
    found.first().map_or(Ok(0), |row| row.get_u64(0))
}

/// Lists running tasks with this concurrency key, each with the limit that it states.
pub(crate) async fn running_with_key(db: &DbPool, key: String) -> Result<Vec<(TaskId, u32)>, StoreError> {
    let sql = "SELECT id, concurrency_max FROM tasks WHERE state = 'running' AND concurrency_key = $1 ORDER BY leased_at LIMIT $2";
    let args = vec![SqlArg::Text(key), SqlArg::Int(SAME_KEY_TASKS_MAX)];
    db.query("reading who shares a key", sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let max = u32::try_from(row.get_i64(1)?).unwrap_or(u32::MAX);
            Ok((TaskId(row.get_uuid(0)?), max))
        })
        .collect()
}
