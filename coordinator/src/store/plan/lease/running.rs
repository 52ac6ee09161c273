//! The tasks that run while others are chosen under limits, and the order in which coordinators choose.
//!
//! On PostgreSQL a position in the log is the id of the transaction that wrote it, and a transaction gets its id with
//! the first row that it locks or writes. A transaction that counted what runs after it has its id may see the end of
//! a task whose transaction has a higher one: read in order, the log would then show more tasks running than a limit
//! allows. So the lock of limited choices is taken, and what runs is counted, before anything else. A transaction that
//! finds a limit without having done so is undone and begun again; its writer then expects limits until a choice
//! meets none.
//!
//! Invariant: where limits are expected, nothing of the transaction is locked or written before [`prepare_limits`].

use docket_schema::{
    ids::{TaskId, Timestamp},
    task::{ConcurrencyLimit, Flow, TaskState},
};

use crate::{
    decide::RunningCounts,
    store::{
        StoreError,
        api::corrupt_error,
        db::{DbConn, SqlDialect, SqlRow, TransactionError, advisory_locks::LIMITED_CHOICE},
        writer::{RunningTask, WorkingSet},
    },
};

/// Takes the lock of limited choices and counts what runs, where the writer expects limits.
pub(crate) async fn prepare_limits(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
) -> Result<(), TransactionError> {
    if set.lease_reads.expects_limits {
        // What another coordinator leased under the lock is committed by the time it is ours.
        LIMITED_CHOICE.acquire(conn).await?;
        set.lease_reads.running = Some(load_running(conn).await?);
    }
    Ok(())
}

/// The tasks that run: as the database has them, and as this batch changes them.
pub(super) async fn count_running(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    under_limits: bool,
) -> Result<RunningCounts, TransactionError> {
    set.lease_reads.depended_on_limits |= under_limits;
    let loaded;
    let stored = match &set.lease_reads.running {
        Some(stored) => stored,
        None if under_limits && conn.dialect() == SqlDialect::Postgres => {
            return Err(TransactionError::LimitLockMissing);
        }
        None => {
            loaded = load_running(conn).await?;
            &loaded
        }
    };
    let mut running = RunningCounts::default();
    for task in stored.iter().filter(|task| !set.writes.tasks.contains_key(&task.id)) {
        running.add_task(&task.flow, task.concurrency.as_ref(), task.leased_at);
    }
    let changed = set.writes.tasks.keys().filter_map(|id| set.tasks.get(id));
    for (record, _) in changed.filter(|(record, _)| record.state == TaskState::Running) {
        let shared = record.spec.conditions.concurrency.as_ref();
        running.add_task(&Flow::from_spec(&record.spec), shared, record.leased_at.unwrap_or_default());
    }
    Ok(running)
}

async fn load_running(conn: &mut DbConn<'_>) -> Result<Vec<RunningTask>, TransactionError> {
    let sql =
        "SELECT id, flow, concurrency_key, concurrency_max, leased_at FROM tasks WHERE state = 'running'";
    let mut running = Vec::new();
    for mut row in conn.query_rows(sql, Vec::new()).await? {
        running.push(RunningTask {
            id: TaskId(row.get_uuid(0)?),
            flow: parse_flow(&row.get_text(1)?)?,
            concurrency: read_concurrency(&mut row, 2)?,
            leased_at: Timestamp(row.get_i64(4)?),
        });
    }
    Ok(running)
}

pub(super) fn parse_flow(text: &str) -> Result<Flow, StoreError> {
    text.parse().map_err(|_| corrupt_error(format!("a flow `{text}`")))
}

/// The key at this place of a row and, behind it, how many may run.
pub(super) fn read_concurrency(row: &mut SqlRow, at: usize) -> Result<Option<ConcurrencyLimit>, StoreError> {
    let max = row.get_i64_or_null(at + 1)?.and_then(|max| u32::try_from(max).ok());
    Ok(row.get_text_or_null(at)?.zip(max).map(|(key, max)| ConcurrencyLimit { key, max }))
}
