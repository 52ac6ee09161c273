//! Running tasks, read while others are chosen under limits, and the lock that orders the choices of
//! coordinators.
//!
//! On PostgreSQL a position in the log contains the id of the writing transaction, which is assigned with the
//! first row that the transaction locks or writes. A transaction that counts running tasks after it has its
//! id may see the end of a task whose transaction has a higher id: read in order, the log would then show
//! more running tasks than a limit allows. So the lock of limited choices is taken, and running tasks are
//! counted, before anything else. A transaction that meets a limit without having done so is rolled back and
//! restarted; its writer then expects limits until a choice meets none.
//!
//! Invariant: where limits are expected, the transaction locks or writes nothing before [`prepare_limits`].

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

/// Takes the lock of limited choices and counts running tasks, if the writer expects limits.
pub(crate) async fn prepare_limits(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
) -> Result<(), TransactionError> {
    if set.lease_reads.expects_limits {
        // Leases granted by another coordinator under the lock are committed when the lock becomes ours.
        LIMITED_CHOICE.acquire(conn).await?;
        set.lease_reads.running = Some(load_running(conn).await?);
    }
    Ok(())
}

/// Lists running tasks: those in the database, with the changes of this batch.
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

/// Reads the concurrency key in this column and its limit in the next.
pub(super) fn read_concurrency(row: &mut SqlRow, at: usize) -> Result<Option<ConcurrencyLimit>, StoreError> {
    let max = row.get_i64_or_null(at + 1)?.and_then(|max| u32::try_from(max).ok());
    Ok(row.get_text_or_null(at)?.zip(max).map(|(key, max)| ConcurrencyLimit { key, max }))
}
