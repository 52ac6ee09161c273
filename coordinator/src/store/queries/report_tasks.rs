//! Which tasks a report is about, a page at a time: by the indexes of batches, of ends and of states, never by the log.

use docket_schema::{
    ids::{TaskId, Timestamp},
    task::TaskState,
    wire::ReportPlace,
};
use uuid::Uuid;

use crate::store::{
    Reported, StoreError,
    db::{Arg, Db},
};

const DOING: &str = "listing tasks for a report";

/// States of tasks that have not ended, in the order in which they are looked at.
const STANDING: [TaskState; 6] = [
    TaskState::Running,
    TaskState::Blocked,
    TaskState::Retryable,
    TaskState::Available,
    TaskState::Scheduled,
    TaskState::Pending,
];

type Found = Vec<(ReportPlace, TaskId)>;

/// Tasks of a report behind `after`, each with its place.
pub(crate) async fn list_reported(
    db: &Db,
    of: Reported,
    after: Option<ReportPlace>,
    limit: u32,
) -> Result<Found, StoreError> {
    match of {
        Reported::Batch(batch) => {
            let behind = if let Some(ReportPlace::Batch(task)) = after { task.0 } else { Uuid::max() };
            let sql =
                "SELECT id FROM tasks WHERE batch = $1 AND id < $2 AND runs > 0 ORDER BY id DESC LIMIT $3";
            let args = vec![Arg::uuid(batch.0), Arg::uuid(behind), Arg::Int(limit.into())];
            let found = tasks(db, sql, args).await?;
            Ok(found.into_iter().map(|(task, _)| (ReportPlace::Batch(task), task)).collect())
        }
        Reported::Ended(from, until) => ended(db, (from, until, Timestamp(i64::MAX)), after, limit).await,
        Reported::Active(from, until) => {
            let mut found = standing(db, until, after, limit).await?;
            let room = room(limit, &found);
            if room > 0 {
                found.extend(ended(db, (from, Timestamp(i64::MAX), until), after, room).await?);
            }
            Ok(found)
        }
    }
}

fn room(limit: u32, found: &Found) -> u32 {
    limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX))
}

/// Tasks that have not ended and were submitted before this instant, state by state.
async fn standing(
    db: &Db,
    submitted_before: Timestamp,
    after: Option<ReportPlace>,
    limit: u32,
) -> Result<Found, StoreError> {
    let mut found = Vec::new();
    let mut skip = match after {
        Some(ReportPlace::Ended(..)) => return Ok(found),
        Some(ReportPlace::Standing(state, _)) => STANDING.iter().position(|one| *one == state),
        Some(ReportPlace::Batch(_)) | None => None,
    };
    for state in STANDING.into_iter().skip(skip.unwrap_or(0)) {
        let room = room(limit, &found);
        if room == 0 {
            break;
        }
        let behind = match (skip.take(), after) {
            (Some(_), Some(ReportPlace::Standing(_, task))) => task.0,
            _ => Uuid::max(),
        };
        let sql = "SELECT id FROM tasks WHERE state = $1 AND id < $2 AND runs > 0 AND submitted_at < $3 \
                   ORDER BY id DESC LIMIT $4";
        let args = vec![
            Arg::Text(state.as_str().to_owned()),
            Arg::uuid(behind),
            Arg::Int(submitted_before.0),
            Arg::Int(room.into()),
        ];
        let some = tasks(db, sql, args).await?;
        found.extend(some.into_iter().map(|(task, _)| (ReportPlace::Standing(state, task), task)));
    }
    Ok(found)
}

/// Tasks that ended between the first two instants and were submitted before the third.
async fn ended(
    db: &Db,
    (from, until, submitted_before): (Timestamp, Timestamp, Timestamp),
    after: Option<ReportPlace>,
    limit: u32,
) -> Result<Found, StoreError> {
    // No id is below the lowest: so this begins with the last one before `until`.
    let (at, behind) = match after {
        Some(ReportPlace::Ended(at, task)) => (at, task.0),
        Some(ReportPlace::Standing(..) | ReportPlace::Batch(_)) | None => (until, Uuid::nil()),
    };
    let sql = "SELECT id, ended_at FROM tasks WHERE ended_at >= $1 AND ended_at <= $2 AND submitted_at < $3 AND runs > 0 \
               AND (ended_at < $2 OR id < $4) ORDER BY ended_at DESC, id DESC LIMIT $5";
    let args = vec![
        Arg::Int(from.0),
        Arg::Int(at.0),
        Arg::Int(submitted_before.0),
        Arg::uuid(behind),
        Arg::Int(limit.into()),
    ];
    let found = tasks(db, sql, args).await?;
    Ok(found.into_iter().map(|(task, at)| (ReportPlace::Ended(at, task), task)).collect())
}

/// Ids, and the second column where there is one.
async fn tasks(db: &Db, sql: &str, args: Vec<Arg>) -> Result<Vec<(TaskId, Timestamp)>, StoreError> {
    let has_end = sql.starts_with("SELECT id, ended_at");
    db.query(DOING, sql, args)
        .await?
        .iter_mut()
        .map(|row| {
            let task = TaskId(row.uuid(0)?);
            Ok((task, Timestamp(if has_end { row.int(1)? } else { 0 })))
        })
        .collect()
}
