//! Reads of workers, and of the counts that a status shows with them.

use docket_schema::{
    ids::{IncarnationId, Timestamp},
    task::TaskState,
    wire::{Room, StateCount, WorkerView},
};

use crate::store::{
    Standing, StoreError,
    api::corrupt,
    db::{Arg, Db},
};

/// Tasks by state, and workers.
pub(crate) async fn read_status(db: &Db, since: Timestamp) -> Result<Standing, StoreError> {
    const DOING: &str = "reading the status";
    let counts = db
        .query(DOING, "SELECT state, count(*) FROM tasks GROUP BY state", Vec::new())
        .await?
        .iter_mut()
        .map(|row| {
            let word = row.text(0)?;
            let state: TaskState = word.parse().map_err(|_| corrupt(format!("a task in state `{word}`")))?;
            Ok(StateCount { state, count: row.count(1)? })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok((counts, list_workers(db, since).await?))
}

/// Workers and how many tasks each has.
pub(super) const WORKERS: &str = "SELECT w.incarnation, w.name, w.seen_at, \
               (SELECT count(*) FROM tasks t WHERE t.state = 'running' AND t.worker = w.incarnation), \
               w.about, w.slots, w.full_why, w.draining \
               FROM workers w WHERE w.seen_at >= $1 ORDER BY w.name, w.incarnation";

/// Workers heard of since `since`.
pub(crate) async fn list_workers(db: &Db, since: Timestamp) -> Result<Vec<WorkerView>, StoreError> {
    db.query("reading the workers", WORKERS, vec![Arg::Int(since.0)])
        .await?
        .iter_mut()
        .map(|row| {
            Ok(WorkerView {
                incarnation: IncarnationId(row.uuid(0)?),
                name: row.text(1)?,
                seen_at: Timestamp(row.int(2)?),
                held: row.small(3)?,
                about: row.text_or_null(4)?.and_then(|text| serde_json::from_str(&text).ok()),
                room: match (row.int_or_null(5)?, row.text_or_null(6)?) {
                    (Some(slots), full) => Some(Room { slots: u32::try_from(slots).unwrap_or(0), full }),
                    (None, _) => None,
                },
                draining: row.int(7)? != 0,
            })
        })
        .collect()
}
