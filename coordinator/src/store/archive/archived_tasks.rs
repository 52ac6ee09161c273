//! Archived tasks as their stubs have them: a list, and the end states of those that others are to wait for.

use docket_schema::{
    ids::{StreamId, TaskId},
    task::TaskState,
    wire::{ArchivedTaskPage, ArchivedTaskQuery, ArchivedTaskView, matches_pattern},
};
use uuid::Uuid;

use super::stub_rows::{STUB_COLUMNS, read_stub};
use crate::store::{
    StoreError,
    api::corrupt,
    db::{Arg, Conn, Db, Dialect, Row, TransactionError},
};

/// Tasks of a page, by default and at most.
const PAGE_TASKS: (u32, u32) = (100, 1000);

/// Stubs that one page looks at, where a pattern is tried on them.
const SCANNED_MAX: usize = 10_000;

/// Archived tasks that match a query, newest first.
pub(crate) async fn list_archived_tasks(
    db: &Db,
    query: ArchivedTaskQuery,
) -> Result<ArchivedTaskPage, StoreError> {
    let limit = query.limit.unwrap_or(PAGE_TASKS.0).clamp(1, PAGE_TASKS.1) as usize;
    let mut before = query.before.unwrap_or(TaskId(Uuid::max()));
    let (mut tasks, mut scanned) = (Vec::new(), 0);
    loop {
        let mut found = page(db, &query, before, limit).await?;
        let is_last = found.len() < limit;
        scanned += found.len();
        for row in &mut found {
            let stub = read_stub(row)?;
            let StreamId::Task(id) = stub.stream else { continue };
            before = id;
            let title = stub.task.as_ref().map_or("", |task| &task.title);
            if query.title.as_ref().is_none_or(|pattern| matches_pattern(pattern, title)) {
                tasks.push(ArchivedTaskView { id, archived_at: stub.archived_at, task: stub.task });
                if tasks.len() == limit {
                    return Ok(ArchivedTaskPage { tasks, next: Some(before) });
                }
            }
        }
        if is_last {
            return Ok(ArchivedTaskPage { tasks, next: None });
        }
        if scanned >= SCANNED_MAX {
            return Ok(ArchivedTaskPage { tasks, next: Some(before) });
        }
    }
}

async fn page(
    db: &Db,
    query: &ArchivedTaskQuery,
    before: TaskId,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let mut args = vec![Arg::uuid(before.0), Arg::count(limit as u64)];
    let mut filters = String::new();
    if let Some(batch) = query.batch {
        args.push(Arg::uuid(batch.0));
        filters.push_str(&format!(" AND batch = ${}", args.len()));
    }
    if let Some(queue) = &query.queue {
        args.push(Arg::Text(queue.as_str().to_owned()));
        filters.push_str(&format!(" AND queue = ${}", args.len()));
    }
    let sql = format!(
        "SELECT {STUB_COLUMNS} FROM archived_streams WHERE id < $1 AND substr(name, 1, 5) = 'task/'{filters} \
         ORDER BY id DESC LIMIT $2"
    );
    db.query("listing archived tasks", &sql, args).await
}

/// How archived tasks ended. On PostgreSQL they cannot come back before the commit: bringing one back, and its end,
/// then find the tasks that wait for it.
pub(crate) async fn read_end_states(
    conn: &mut Conn<'_>,
    tasks: Vec<TaskId>,
) -> Result<Vec<(TaskId, TaskState)>, TransactionError> {
    let lock = match conn.dialect() {
        Dialect::Sqlite => "",
        Dialect::Postgres => " FOR SHARE",
    };
    let sql = format!(
        "SELECT id, state FROM archived_streams WHERE {} AND state IS NOT NULL ORDER BY id{lock}",
        conn.dialect().any_blob("id", 1)
    );
    let mut states = Vec::new();
    for mut row in conn.rows(&sql, vec![Arg::uuids(tasks.iter().map(|id| id.0))]).await? {
        let id = TaskId(row.uuid(0)?);
        let state = row.text(1)?.parse().map_err(|_| corrupt(format!("archived task {id}: its state")))?;
        states.push((id, state));
    }
    Ok(states)
}
