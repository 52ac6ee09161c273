//! Reads of single tasks, and of tasks that background jobs look for.

use docket_schema::ids::{Epoch, TaskId, Timestamp};

use crate::store::{
    DueTasks, StoreError, TaskWithDeadline,
    db::{
        DbPool, SqlArg,
        row::{TASK_COLUMNS, TASK_TABLES, read_task_row},
    },
};

pub(crate) async fn read_task(db: &DbPool, id: TaskId) -> Result<Option<TaskWithDeadline>, StoreError> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE t.id = $1");
    db.query("reading a task", &sql, vec![SqlArg::from_uuid(id.0)])
        .await?
        .first_mut()
        .map(read_task_row)
        .transpose()
}

/// Lists running tasks whose deadline has passed.
pub(crate) async fn list_expired_leases(
    db: &DbPool,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(TaskId, Epoch)>, StoreError> {
    let sql = "SELECT id, epoch FROM tasks WHERE state = 'running' AND deadline_at < $1 ORDER BY deadline_at LIMIT $2";
    db.query("looking for expired leases", sql, vec![SqlArg::Int(now.0), SqlArg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| Ok((TaskId(row.get_uuid(0)?), Epoch(row.get_u64(1)?))))
        .collect()
}

/// Finds tasks blocked on their batch's budget that was changed since.
async fn find_unblocked_by_budget(db: &DbPool, limit: u32) -> Result<Vec<TaskId>, StoreError> {
    let sql = "SELECT t.id FROM tasks t LEFT JOIN batch_budgets b ON b.batch = t.batch \
               WHERE t.blocked_why = 'budget' AND b.spent IS NULL LIMIT $1";
    db.query("looking for raised budgets", sql, vec![SqlArg::Int(limit.into())])
        .await?
        .iter_mut()
        .map(|row| Ok(TaskId(row.get_uuid(0)?)))
        .collect()
}

/// Lists tasks that are due, and returns when the next one will be.
pub(crate) async fn list_due_tasks(db: &DbPool, now: Timestamp, limit: u32) -> Result<DueTasks, StoreError> {
    let sql = "SELECT id, available_at FROM tasks \
               WHERE state IN ('scheduled', 'retryable') OR blocked_why = 'outage' \
               ORDER BY available_at LIMIT $1";
    let mut due = find_unblocked_by_budget(db, limit).await?;
    // One more than wanted: the first that is not due says when to look again.
    for mut row in db.query("looking for due tasks", sql, vec![SqlArg::Int(i64::from(limit) + 1)]).await? {
        let at = Timestamp(row.get_i64(1)?);
        if at > now || due.len() >= limit as usize {
            return Ok((due, Some(at)));
        }
        due.push(TaskId(row.get_uuid(0)?));
    }
    Ok((due, None))
}
