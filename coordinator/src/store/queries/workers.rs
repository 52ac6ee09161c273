//! Reads of workers, and of the counts shown with them.

use docket_schema::{
    api::{StateCount, WorkerCapacity, WorkerView},
    ids::{IncarnationId, Timestamp},
    task::TaskState,
};

use crate::store::{
    StatusRows, StoreError,
    api::corrupt_error,
    db::{DbPool, SqlArg},
};

/// Reads tasks by state, and workers.
pub(crate) async fn read_status(db: &DbPool, since: Timestamp) -> Result<StatusRows, StoreError> {
    const DOING: &str = "reading the status";
    let counts = db
        .query(DOING, "SELECT state, count(*) FROM tasks GROUP BY state", Vec::new())
        .await?
        .iter_mut()
        .map(|row| {
            let word = row.get_text(0)?;
            let state: TaskState =
                word.parse().map_err(|_| corrupt_error(format!("a task in state `{word}`")))?;
            Ok(StateCount { state, count: row.get_u64(1)? })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok((counts, list_workers(db, since).await?))
}

/// Workers with their number of tasks.
pub(super) const WORKERS_SQL: &str = "SELECT w.incarnation, w.name, w.seen_at, \
               (SELECT count(*) FROM tasks t WHERE t.state = 'running' AND t.worker = w.incarnation), \
               w.about, w.slots, w.full_why, w.draining \
               FROM workers w WHERE w.seen_at >= $1 ORDER BY w.name, w.incarnation";

/// Lists workers heard from since `since`.
pub(crate) async fn list_workers(db: &DbPool, since: Timestamp) -> Result<Vec<WorkerView>, StoreError> {
    db.query("reading the workers", WORKERS_SQL, vec![SqlArg::Int(since.0)])
        .await?
        .iter_mut()
        .map(|row| {
            Ok(WorkerView {
                incarnation: IncarnationId(row.get_uuid(0)?),
                name: row.get_text(1)?,
                seen_at: Timestamp(row.get_i64(2)?),
                held: row.get_u32(3)?,
                about: row.get_text_or_null(4)?.and_then(|text| serde_json::from_str(&text).ok()),
                room: match (row.get_i64_or_null(5)?, row.get_text_or_null(6)?) {
                    (Some(slots), full) => {
                        Some(WorkerCapacity { slots: u32::try_from(slots).unwrap_or(0), full })
                    }
                    (None, _) => None,
                },
                draining: row.get_i64(7)? != 0,
            })
        })
        .collect()
}
