//! Reads of the inbox.

use docket_schema::{ids::Timestamp, wire::InboxRow};

use crate::store::{
    StoreError,
    db::{Arg, Db, Row},
};

const COLUMNS: &str = "id, spec, submitted_by, created_at, refused, refused_at";

fn inbox_row(row: &mut Row) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        id: row.text(0)?,
        spec: row.text(1)?,
        submitted_by: row.text(2)?,
        created_at: Timestamp(row.int(3)?),
        refused: row.text_or_null(4)?,
        refused_at: row.int_or_null(5)?.map(Timestamp),
    })
}

/// See [`list_waiting`].
pub(super) const WAITING: &str = "SELECT id, spec, submitted_by, created_at, refused, refused_at FROM inbox \
     WHERE refused IS NULL ORDER BY created_at, id LIMIT $1";

/// Rows that wait to be taken, oldest first. By `inbox_waiting`: asked each second.
pub(crate) async fn list_waiting(db: &Db, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let args = vec![Arg::Int(limit.into())];
    db.query("reading the inbox", WAITING, args).await?.iter_mut().map(inbox_row).collect()
}

/// All rows, oldest first.
pub(crate) async fn list_all(db: &Db, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM inbox ORDER BY created_at, id LIMIT $1");
    let args = vec![Arg::Int(limit.into())];
    db.query("reading the inbox", &sql, args).await?.iter_mut().map(inbox_row).collect()
}

/// How many rows wait, and how many were refused.
pub(crate) async fn count_rows(db: &Db) -> Result<(u64, u64), StoreError> {
    let sql = "SELECT count(*), count(refused) FROM inbox";
    let found = db.query("counting the inbox", sql, Vec::new()).await?;
    let count = |at| found.first().map_or(Ok(0), |row| row.count(at));
    let (all, refused) = (count(0)?, count(1)?);
    Ok((all.saturating_sub(refused), refused))
}
