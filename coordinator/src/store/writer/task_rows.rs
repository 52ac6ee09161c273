//! Rows of tasks, for batches and for rebuilds.

use docket_schema::{
    ids::{StreamId, Timestamp},
    task::{Flow, TaskRecord, TaskState},
};

use super::{
    batch_writes::DeadlineChange,
    row_write::{
        ColumnKind::{Blob, Int, Text},
        RowWrite,
    },
    working_set::WorkingSet,
};
use crate::store::db::{
    SqlArg,
    row::{blocked_reason_name, encode_task_ids},
};

/// Changed and new tasks: columns that never change are not written again.
pub(crate) fn task_writes(set: &WorkingSet) -> [RowWrite; 2] {
    let mut new = RowWrite::insert(
        "INSERT INTO tasks (id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, \
         failures, crashes, runs, run, last_run, worker, available_at, blocked_why, message, submitted_at, \
         ended_at, flow, rank, concurrency_key, concurrency_max, waits_for, leased_at, unverified, \
         worker_faults, deadline_at) {rows}",
        &[
            Blob, Int, Int, Blob, Text, Text, Text, Int, Text, Blob, Int, Int, Int, Int, Blob, Blob, Blob,
            Int, Text, Text, Int, Int, Text, Int, Text, Int, Blob, Int, Text, Int, Int,
        ],
    )
    .sharing_across_tables("tasks");
    // A deadline of 0 keeps the existing one.
    let mut changed = RowWrite::update(
        "WITH u(id, seq, hash, state, priority, epoch, failures, crashes, runs, run, last_run, worker, \
         available_at, blocked_why, message, ended_at, rank, waits_for, leased_at, unverified, worker_faults, deadline_at) AS ({rows}) UPDATE tasks SET seq = u.seq, \
         hash = u.hash, state = u.state, priority = u.priority, epoch = u.epoch, failures = u.failures, \
         crashes = u.crashes, runs = u.runs, run = u.run, last_run = u.last_run, worker = u.worker, \
         available_at = u.available_at, blocked_why = u.blocked_why, message = u.message, \
         ended_at = u.ended_at, rank = u.rank, waits_for = u.waits_for, leased_at = u.leased_at, \
         unverified = u.unverified, worker_faults = u.worker_faults, \
         deadline_at = CASE u.deadline_at WHEN 0 THEN tasks.deadline_at ELSE u.deadline_at END \
         FROM u WHERE tasks.id = u.id",
        "UPDATE tasks SET seq = ?2, hash = ?3, state = ?4, priority = ?5, epoch = ?6, failures = ?7, \
         crashes = ?8, runs = ?9, run = ?10, last_run = ?11, worker = ?12, available_at = ?13, \
         blocked_why = ?14, message = ?15, ended_at = ?16, rank = ?17, waits_for = ?18, leased_at = ?19, \
         unverified = ?20, worker_faults = ?21, deadline_at = CASE ?22 WHEN 0 THEN deadline_at ELSE ?22 END WHERE id = ?1",
        &[
            Blob, Int, Blob, Text, Int, Int, Int, Int, Int, Blob, Blob, Blob, Int, Text, Text, Int, Int, Blob, Int, Text,
            Int, Int,
        ],
    )
    .sharing_across_tables("tasks")
    .with_required_change();
    for (id, deadline) in &set.writes.tasks {
        let Some((record, stream_id)) = set.tasks.get(id) else { continue };
        let deadline = match deadline {
            DeadlineChange::Keep => Timestamp(0),
            DeadlineChange::Set(at) => *at,
        };
        let begins = set.writes.streams.get(&StreamId::Task(*id)).is_some_and(Option::is_none);
        let write = if begins {
            new.cells.extend(task_args(record, *stream_id));
            &mut new
        } else {
            changed.cells.extend(mutable_columns(record));
            &mut changed
        };
        let running = record.state == TaskState::Running;
        write.cells.push(SqlArg::IntOrNull(running.then_some(deadline.0)));
    }
    // In this order, because an ending task passes its deduplication key to a new one.
    [changed, new]
}

/// Returns the columns that an event may change, except the deadline.
fn mutable_columns(record: &TaskRecord) -> [SqlArg; 21] {
    [
        SqlArg::from_uuid(record.id.0),
        SqlArg::from_u64(record.seq.0),
        SqlArg::Hash(record.hash.0),
        SqlArg::StaticText(record.state.as_str()),
        SqlArg::Int(record.spec.priority.into()),
        SqlArg::from_u64(record.epoch.0),
        SqlArg::Int(record.failures.into()),
        SqlArg::Int(record.crashes.into()),
        SqlArg::Int(record.runs.into()),
        SqlArg::from_uuid_or_null(record.run.map(|run| run.0)),
        SqlArg::from_uuid_or_null(record.last_run.map(|run| run.0)),
        SqlArg::from_uuid_or_null(record.worker.map(|worker| worker.0)),
        SqlArg::Int(record.available_at.0),
        SqlArg::TextOrNull(record.blocked_why.map(|why| blocked_reason_name(why).to_owned())),
        SqlArg::TextOrNull(record.message.clone()),
        SqlArg::IntOrNull(record.ended_at.map(|at| at.0)),
        SqlArg::Int(record.lease_rank()),
        SqlArg::BlobOrNull(encode_task_ids(&record.waits_for)),
        SqlArg::IntOrNull(record.leased_at.map(|at| at.0)),
        SqlArg::TextOrNull(record.unverified.clone()),
        SqlArg::Int(record.worker_faults.into()),
    ]
}

/// Columns of a task derived from the log: all except the deadline.
pub(crate) const TASK_ROW_COLUMNS: [&str; 30] = [
    "id",
    "stream_id",
    "seq",
    "hash",
    "state",
    "queue",
    "engine",
    "priority",
    "dedup_key",
    "batch",
    "epoch",
    "failures",
    "crashes",
    "runs",
    "run",
    "last_run",
    "worker",
    "available_at",
    "blocked_why",
    "message",
    "submitted_at",
    "ended_at",
    "flow",
    "rank",
    "concurrency_key",
    "concurrency_max",
    "waits_for",
    "leased_at",
    "unverified",
    "worker_faults",
];

/// Returns the values of these columns.
pub(crate) fn task_args(record: &TaskRecord, stream_id: i64) -> Vec<SqlArg> {
    let concurrency = record.spec.conditions.concurrency.as_ref();
    vec![
        SqlArg::from_uuid(record.id.0),
        SqlArg::Int(stream_id),
        SqlArg::from_u64(record.seq.0),
        SqlArg::Hash(record.hash.0),
        SqlArg::StaticText(record.state.as_str()),
        SqlArg::Text(record.spec.queue.as_str().to_owned()),
        SqlArg::Text(record.spec.engine.clone()),
        SqlArg::Int(record.spec.priority.into()),
        SqlArg::TextOrNull(record.spec.dedup_key.clone()),
        SqlArg::from_uuid_or_null(record.spec.batch.map(|batch| batch.0)),
        SqlArg::from_u64(record.epoch.0),
        SqlArg::Int(record.failures.into()),
        SqlArg::Int(record.crashes.into()),
        SqlArg::Int(record.runs.into()),
        SqlArg::from_uuid_or_null(record.run.map(|run| run.0)),
        SqlArg::from_uuid_or_null(record.last_run.map(|run| run.0)),
        SqlArg::from_uuid_or_null(record.worker.map(|worker| worker.0)),
        SqlArg::Int(record.available_at.0),
        SqlArg::TextOrNull(record.blocked_why.map(|why| blocked_reason_name(why).to_owned())),
        SqlArg::TextOrNull(record.message.clone()),
        SqlArg::Int(record.submitted_at.0),
        SqlArg::IntOrNull(record.ended_at.map(|at| at.0)),
        SqlArg::Text(Flow::from_spec(&record.spec).to_string()),
        SqlArg::Int(record.lease_rank()),
        SqlArg::TextOrNull(concurrency.map(|shared| shared.key.clone())),
        SqlArg::IntOrNull(concurrency.map(|shared| shared.max.into())),
        SqlArg::BlobOrNull(encode_task_ids(&record.waits_for)),
        SqlArg::IntOrNull(record.leased_at.map(|at| at.0)),
        SqlArg::TextOrNull(record.unverified.clone()),
        SqlArg::Int(record.worker_faults.into()),
    ]
}

#[cfg(test)]
mod tests {
    use docket_schema::migrations;

    #[test]
    fn sqlite_rejects_task_row_with_inconsistent_columns() {
        let conn = rusqlite::Connection::open_in_memory().expect("memory opens");
        for migration in migrations::SQLITE {
            conn.execute_batch(migration.sql).expect("migrates");
        }
        let insert = |columns: &str| {
            let (worker, run, why, ended) = match columns.split(' ').collect::<Vec<_>>()[..] {
                [_, worker, run, why, ended] => (worker, run, why, ended),
                _ => panic!("four columns behind the state"),
            };
            let state = columns.split(' ').next().unwrap_or_default();
            let given = |is: &str, value: &str| if is == "+" { value.to_owned() } else { "NULL".to_owned() };
            let why = if why == "-" { "NULL".to_owned() } else { format!("'{why}'") };
            conn.execute(
                &format!(
                    "INSERT INTO tasks (id, stream_id, seq, hash, state, queue, engine, priority, epoch, failures, \
                     crashes, runs, run, worker, deadline_at, leased_at, blocked_why, ended_at, available_at, \
                     submitted_at, flow, rank, worker_faults) VALUES (randomblob(16), 1, 1, x'00', '{state}', 'q', 'e', 0, 1, 0, 0, \
                     1, {run}, {worker}, {deadline}, {deadline}, {why}, {ended}, 0, 0, 'f', 0, 0)",
                    run = given(run, "x'01'"),
                    worker = given(worker, "x'02'"),
                    deadline = given(worker, "9"),
                    ended = given(ended, "9"),
                ),
                [],
            )
        };
        for good in [
            "available - - - -",
            "available - + - -",
            "running + + - -",
            "completed - - - +",
            "blocked - + person -",
            "retryable - - - -",
            "discarded - - - +",
        ] {
            insert(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for bad in [
            "available + + - -",
            "available - - - +",
            "running - + - -",
            "running + - - -",
            "completed - + - +",
            "completed - - - -",
            "blocked - + - -",
            "blocked - + hunger -",
            "retryable - - person -",
            "pending - - - -",
            "asleep - - - -",
        ] {
            assert!(insert(bad).is_err(), "{bad} was taken");
        }
    }
}
