//! What runs while tasks are chosen under limits, and the order in which coordinators choose.
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
    task::{Concurrency, Flow, TaskState},
};
use uuid::Uuid;

use super::choose::{flow_of, read_concurrency};
use crate::{
    decide::Running,
    store::{
        conn::{Conn, Dialect},
        desk::{Desk, LoadError},
        postgres::advisory_locks::LIMITED_CHOICE,
    },
};

/// A task that runs, as limits see it.
#[derive(Debug, Clone)]
pub(in crate::store) struct RunningTask {
    id: TaskId,
    flow: Flow,
    shared: Option<Concurrency>,
    leased_at: Timestamp,
}

/// Takes the lock of limited choices and counts what runs, where the writer expects limits.
pub(super) async fn prepare_limits(desk: &mut Desk, conn: &mut Conn<'_>) -> Result<(), LoadError> {
    if desk.leasing.expects_limits {
        // What another coordinator leased under the lock is committed by the time it is ours.
        LIMITED_CHOICE.acquire(conn).await?;
        desk.leasing.running = Some(load_running(conn).await?);
    }
    Ok(())
}

/// What runs: as the database has it, and as this batch changes it.
pub(super) async fn count_running(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    under_limits: bool,
) -> Result<Running, LoadError> {
    desk.leasing.meets_limits |= under_limits;
    let loaded;
    let stored = match &desk.leasing.running {
        Some(stored) => stored,
        None if under_limits && conn.dialect() == Dialect::Postgres => {
            return Err(LoadError::LimitsUnexpected);
        }
        None => {
            loaded = load_running(conn).await?;
            &loaded
        }
    };
    let mut running = Running::default();
    for task in stored.iter().filter(|task| !desk.staged.tasks.contains_key(&task.id)) {
        running.add(&task.flow, task.shared.as_ref(), task.leased_at);
    }
    let changed = desk.staged.tasks.keys().filter_map(|id| desk.tasks.get(id));
    for (record, _) in changed.filter(|(record, _)| record.state == TaskState::Running) {
        let shared = record.spec.conditions.concurrency.as_ref();
        running.add(&Flow::of(&record.spec), shared, record.leased_at.unwrap_or_default());
    }
    Ok(running)
}

async fn load_running(conn: &mut Conn<'_>) -> Result<Vec<RunningTask>, LoadError> {
    let sql =
        "SELECT id, flow, concurrency_key, concurrency_max, leased_at FROM tasks WHERE state = 'running'";
    let mut running = Vec::new();
    for mut row in conn.rows(sql, Vec::new()).await? {
        running.push(RunningTask {
            id: TaskId(Uuid::from_bytes(row.fixed(0)?)),
            flow: flow_of(&row.text(1)?)?,
            shared: read_concurrency(&mut row, 2)?,
            leased_at: Timestamp(row.int(4)?),
        });
    }
    Ok(running)
}
