//! Archived tasks as recorded in their stubs: lists, and end states for dependents.

use docket_schema::{
    api::{ArchivedTaskPage, ArchivedTaskQuery, ArchivedTaskView, matches_pattern},
    ids::{StreamId, TaskId},
    task::TaskState,
};
use uuid::Uuid;

use super::stub_rows::{STUB_COLUMNS, read_stub};
use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{DbConn, DbPool, SqlArg, SqlDialect, SqlRow, TransactionError},
};

/// Tasks per page: default and maximum.
const PAGE_TASKS_DEFAULT_AND_MAX: (u32, u32) = (100, 1000);

/// Stubs examined per page when a pattern is applied.
const SCANNED_MAX: usize = 10_000;

/// Lists archived tasks that match a query, newest first.
pub(crate) async fn list_archived_tasks(
    db: &DbPool,
    query: ArchivedTaskQuery,
) -> Result<ArchivedTaskPage, StoreError> {
    let limit =
        query.limit.unwrap_or(PAGE_TASKS_DEFAULT_AND_MAX.0).clamp(1, PAGE_TASKS_DEFAULT_AND_MAX.1) as usize;
    let mut before = query.before.unwrap_or(TaskId(Uuid::max()));
    let (mut tasks, mut scanned) = (Vec::new(), 0);
    loop {
        let mut found = read_stub_page(db, &query, before, limit).await?;
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

async fn read_stub_page(
    db: &DbPool,
    query: &ArchivedTaskQuery,
    before: TaskId,
    limit: usize,
) -> Result<Vec<SqlRow>, StoreError> {
    let mut args = vec![SqlArg::from_uuid(before.0), SqlArg::from_u64(limit as u64)];
    let mut filters = String::new();
    if let Some(batch) = query.batch {
        args.push(SqlArg::from_uuid(batch.0));
        filters.push_str(&format!(" AND batch = ${}", args.len()));
    }
    if let Some(queue) = &query.queue {
        args.push(SqlArg::Text(queue.as_str().to_owned()));
        filters.push_str(&format!(" AND queue = ${}", args.len()));
    }
    let sql = format!(
        "SELECT {STUB_COLUMNS} FROM archived_streams WHERE id < $1 AND substr(name, 1, 5) = 'task/'{filters} \
         ORDER BY id DESC LIMIT $2"
    );
    db.query("listing archived tasks", &sql, args).await
}

/// Reads the end states of archived tasks. On PostgreSQL they are locked against a restore until the commit:
/// a later restore, and the task's next end, then finds the tasks that wait for it.
pub(crate) async fn read_end_states(
    conn: &mut DbConn<'_>,
    tasks: Vec<TaskId>,
) -> Result<Vec<(TaskId, TaskState)>, TransactionError> {
    let lock = match conn.dialect() {
        SqlDialect::Sqlite => "",
        SqlDialect::Postgres => " FOR SHARE",
    };
    let sql = format!(
        "SELECT id, state FROM archived_streams WHERE {} AND state IS NOT NULL ORDER BY id{lock}",
        conn.dialect().any_blob_sql("id", 1)
    );
    let mut states = Vec::new();
    for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuids(tasks.iter().map(|id| id.0))]).await? {
        let id = TaskId(row.get_uuid(0)?);
        let state =
            row.get_text(1)?.parse().map_err(|_| corrupt_error(format!("archived task {id}: its state")))?;
        states.push((id, state));
    }
    Ok(states)
}
