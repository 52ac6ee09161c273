//! Selection of a report's tasks, in pages, by the indexes of batches, of ends and of states, never by the
//! log.

use docket_schema::{
    api::ReportCursor,
    ids::{TaskId, Timestamp},
    task::TaskState,
};
use uuid::Uuid;

use crate::store::{
    ReportScope, StoreError,
    db::{DbPool, SqlArg},
};

const DOING: &str = "listing tasks for a report";

/// States of unfinished tasks, in the order in which they are examined.
const OPEN_STATES: [TaskState; 6] = [
    TaskState::Running,
    TaskState::Blocked,
    TaskState::Retryable,
    TaskState::Available,
    TaskState::Scheduled,
    TaskState::Pending,
];

type ReportTasks = Vec<(ReportCursor, TaskId)>;

/// Lists tasks of a report after `after`, each with its cursor.
pub(crate) async fn list_report_tasks(
    db: &DbPool,
    of: ReportScope,
    after: Option<ReportCursor>,
    limit: u32,
) -> Result<ReportTasks, StoreError> {
    match of {
        ReportScope::Batch(batch) => {
            let behind = if let Some(ReportCursor::Batch(task)) = after { task.0 } else { Uuid::max() };
            let sql =
                "SELECT id FROM tasks WHERE batch = $1 AND id < $2 AND runs > 0 ORDER BY id DESC LIMIT $3";
            let args = vec![SqlArg::from_uuid(batch.0), SqlArg::from_uuid(behind), SqlArg::Int(limit.into())];
            let found = query_task_ids(db, sql, args).await?;
            Ok(found.into_iter().map(|(task, _)| (ReportCursor::Batch(task), task)).collect())
        }
        ReportScope::Ended(from, until) => {
            list_ended_tasks(db, (from, until, Timestamp(i64::MAX)), after, limit).await
        }
        ReportScope::Active(from, until) => {
            let mut found = list_open_tasks(db, until, after, limit).await?;
            let room = remaining_limit(limit, &found);
            if room > 0 {
                found.extend(list_ended_tasks(db, (from, Timestamp(i64::MAX), until), after, room).await?);
            }
            Ok(found)
        }
    }
}

fn remaining_limit(limit: u32, found: &ReportTasks) -> u32 {
    limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX))
}

/// Lists unfinished tasks submitted before this time, state by state.
async fn list_open_tasks(
    db: &DbPool,
    submitted_before: Timestamp,
    after: Option<ReportCursor>,
    limit: u32,
) -> Result<ReportTasks, StoreError> {
    let mut found = Vec::new();
    let mut skip = match after {
        Some(ReportCursor::Ended(..)) => return Ok(found),
        Some(ReportCursor::Unfinished(state, _)) => OPEN_STATES.iter().position(|one| *one == state),
        Some(ReportCursor::Batch(_)) | None => None,
    };
    for state in OPEN_STATES.into_iter().skip(skip.unwrap_or(0)) {
        let room = remaining_limit(limit, &found);
        if room == 0 {
            break;
        }
        let behind = match (skip.take(), after) {
            (Some(_), Some(ReportCursor::Unfinished(_, task))) => task.0,
            _ => Uuid::max(),
        };
        let sql = "SELECT id FROM tasks WHERE state = $1 AND id < $2 AND runs > 0 AND submitted_at < $3 \
                   ORDER BY id DESC LIMIT $4";
        let args = vec![
            SqlArg::Text(state.as_str().to_owned()),
            SqlArg::from_uuid(behind),
            SqlArg::Int(submitted_before.0),
            SqlArg::Int(room.into()),
        ];
        let some = query_task_ids(db, sql, args).await?;
        found.extend(some.into_iter().map(|(task, _)| (ReportCursor::Unfinished(state, task), task)));
    }
    Ok(found)
}

/// Lists tasks that ended between the first two times and were submitted before the third.
async fn list_ended_tasks(
    db: &DbPool,
    (from, until, submitted_before): (Timestamp, Timestamp, Timestamp),
    after: Option<ReportCursor>,
    limit: u32,
) -> Result<ReportTasks, StoreError> {
    // No id is below the lowest, so this starts with the last task before `until`.
    let (at, behind) = match after {
        Some(ReportCursor::Ended(at, task)) => (at, task.0),
        Some(ReportCursor::Unfinished(..) | ReportCursor::Batch(_)) | None => (until, Uuid::nil()),
    };
    let sql = "SELECT id, ended_at FROM tasks WHERE ended_at >= $1 AND ended_at <= $2 AND submitted_at < $3 AND runs > 0 \
               AND (ended_at < $2 OR id < $4) ORDER BY ended_at DESC, id DESC LIMIT $5";
    let args = vec![
        SqlArg::Int(from.0),
        SqlArg::Int(at.0),
        SqlArg::Int(submitted_before.0),
        SqlArg::from_uuid(behind),
        SqlArg::Int(limit.into()),
    ];
    let found = query_task_ids(db, sql, args).await?;
    Ok(found.into_iter().map(|(task, at)| (ReportCursor::Ended(at, task), task)).collect())
}

/// Reads ids, and the second column if there is one.
async fn query_task_ids(
    db: &DbPool,
    sql: &str,
    args: Vec<SqlArg>,
) -> Result<Vec<(TaskId, Timestamp)>, StoreError> {
    let has_end = sql.starts_with("SELECT id, ended_at");
    db.query(DOING, sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let task = TaskId(row.get_uuid(0)?);
            Ok((task, Timestamp(if has_end { row.get_i64(1)? } else { 0 })))
        })
        .collect()
}
