//! Reads of queues, and of what keeps a task back.

use std::collections::BTreeMap;

use docket_schema::{
    ids::{BatchId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{Concurrency, Flow, TaskRecord},
    wire::{QueueView, StateCount},
};

use super::{inbox::WAITING, workers::WORKERS};
use crate::{
    decide::{Waiting, WaitingPart},
    store::{
        StoreError,
        api::corrupt,
        db::{Arg, Db},
    },
};

/// The queries that are sent again and again, whatever has ended: by each scrape of `/metrics`, each autoscaler, each
/// second. For the test that holds them to indexes of what has not ended.
pub const ASKED_OFTEN: [&str; 5] = [COUNTS, PARTS, KEYS, WORKERS, WAITING];

/// Tasks that are counted as going before another, at most: beyond that the number says nothing more.
const AHEAD_MAX: i64 = 1000;

/// Tasks that share a key and are named, at most.
const SHARING_MAX: i64 = 100;

fn queue_of(text: &str) -> Result<QueueName, StoreError> {
    text.parse().map_err(|_| corrupt(format!("a queue named `{text}`")))
}

/// Tasks that have not ended, by queue and state: over the index of states.
const COUNTS: &str = "SELECT queue, state, count(*), min(CASE state WHEN 'available' THEN available_at END), min(leased_at) \
               FROM tasks WHERE state IN ('pending', 'scheduled', 'available', 'running', 'retryable', 'blocked') \
               GROUP BY queue, state ORDER BY queue, state";

/// Every queue with settings or with tasks that have not ended. Costs what those tasks do.
pub(crate) async fn list_queues(db: &Db) -> Result<Vec<QueueView>, StoreError> {
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
        let name = queue_of(&row.text(0)?)?;
        let running_max = row.int_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        let settings = QueueSettings { paused: row.int(1)? != 0, running_max };
        all.insert(name.clone(), QueueView { settings, ..empty(name) });
    }
    for mut row in db.query(DOING, COUNTS, Vec::new()).await? {
        let name = queue_of(&row.text(0)?)?;
        let word = row.text(1)?;
        let state = word.parse().map_err(|_| corrupt(format!("a task in state `{word}`")))?;
        let count = row.count(2)?;
        let view = all.entry(name.clone()).or_insert_with(|| empty(name));
        view.tasks.push(StateCount { state, count });
        view.oldest_available_at = view.oldest_available_at.or(row.int_or_null(3)?.map(Timestamp));
        view.oldest_leased_at = view.oldest_leased_at.or(row.int_or_null(4)?.map(Timestamp));
    }
    Ok(all.into_values().collect())
}

/// Flows and keys that are told apart at a time, and batches that are read.
const PARTS_MAX: i64 = 10_000;

/// Tasks that may be leased, by flow and key.
const PARTS: &str = "SELECT flow, concurrency_key, min(concurrency_max), count(*) FROM tasks \
               WHERE state = 'available' AND flow > '' GROUP BY flow, concurrency_key LIMIT $1";

/// Tasks that run, by key.
const KEYS: &str = "SELECT concurrency_key, count(*), min(concurrency_max) FROM tasks \
               WHERE state = 'running' AND concurrency_key IS NOT NULL GROUP BY concurrency_key";

/// The tasks that wait for a worker, and what keeps them back. Costs what the tasks do that may be leased, or run.
pub(crate) async fn read_waiting(db: &Db) -> Result<Waiting, StoreError> {
    const DOING: &str = "reading what waits";
    let max_of = |max: Option<i64>| max.and_then(|max| u32::try_from(max).ok()).unwrap_or(u32::MAX);
    let mut waiting = Waiting::default();
    for mut row in db.query(DOING, PARTS, vec![Arg::Int(PARTS_MAX)]).await? {
        let text = row.text(0)?;
        let flow = text.parse().map_err(|_| corrupt(format!("a flow `{text}`")))?;
        let max = max_of(row.int_or_null(2)?);
        let key = row.text_or_null(1)?.map(|key| Concurrency { key, max });
        waiting.parts.push(WaitingPart { flow, key, tasks: row.count(3)? });
    }
    if waiting.parts.iter().any(|part| part.key.is_some()) {
        for mut row in db.query(DOING, KEYS, Vec::new()).await? {
            waiting.keys.insert(row.text(0)?, (row.count(1)?, max_of(row.int_or_null(2)?)));
        }
    }
    if waiting.parts.iter().any(|part| part.flow.batch.is_some()) {
        let sql = "SELECT batch FROM batch_budgets WHERE spent IS NOT NULL ORDER BY batch DESC LIMIT $1";
        for mut row in db.query(DOING, sql, vec![Arg::Int(PARTS_MAX)]).await? {
            waiting.spent.insert(BatchId(row.uuid(0)?));
        }
    }
    Ok(waiting)
}

/// Tasks of the same flow that go before one that may be leased.
pub(crate) async fn count_ahead(db: &Db, record: &TaskRecord) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 'available' AND flow = $1 \
               AND (rank < $2 OR (rank = $2 AND id < $3)) LIMIT $4) before_it";
    let args = vec![
        Arg::Text(Flow::of(&record.spec).to_string()),
        Arg::Int(record.rank()),
        Arg::uuid(record.id.0),
        Arg::Int(AHEAD_MAX),
    ];
    let found = db.query("counting tasks that go before one", sql, args).await?;
    found.first().map_or(Ok(0), |row| row.count(0))
}

/// Tasks that run and have this concurrency key, and how many each says that may.
pub(crate) async fn running_with_key(db: &Db, key: String) -> Result<Vec<(TaskId, u32)>, StoreError> {
    let sql = "SELECT id, concurrency_max FROM tasks WHERE state = 'running' AND concurrency_key = $1 ORDER BY leased_at LIMIT $2";
    let args = vec![Arg::Text(key), Arg::Int(SHARING_MAX)];
    db.query("reading who shares a key", sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let max = u32::try_from(row.int(1)?).unwrap_or(u32::MAX);
            Ok((TaskId(row.uuid(0)?), max))
        })
        .collect()
}
