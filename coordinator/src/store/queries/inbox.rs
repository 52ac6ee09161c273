//! Reads of the inbox.

use docket_schema::{api::InboxRow, ids::Timestamp};

use crate::store::{
    StoreError,
    db::{DbPool, SqlArg, SqlRow},
};

const INBOX_COLUMNS: &str = "id, spec, submitted_by, created_at, refused, refused_at";

fn read_inbox_row(row: &mut SqlRow) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        id: row.get_text(0)?,
        spec: row.get_text(1)?,
        submitted_by: row.get_text(2)?,
        created_at: Timestamp(row.get_i64(3)?),
        refused: row.get_text_or_null(4)?,
        refused_at: row.get_i64_or_null(5)?.map(Timestamp),
    })
}

/// Statement of [`list_waiting_rows`].
pub(super) const WAITING_SQL: &str = "SELECT id, spec, submitted_by, created_at, refused, refused_at FROM inbox \
     WHERE refused IS NULL ORDER BY created_at, id LIMIT $1";

/// Lists waiting rows, oldest first. Uses the index `inbox_waiting`, because it runs every second.
pub(crate) async fn list_waiting_rows(db: &DbPool, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let args = vec![SqlArg::Int(limit.into())];
    db.query("reading the inbox", WAITING_SQL, args).await?.iter_mut().map(read_inbox_row).collect()
}

/// Lists all rows, oldest first.
pub(crate) async fn list_all_rows(db: &DbPool, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let sql = format!("SELECT {INBOX_COLUMNS} FROM inbox ORDER BY created_at, id LIMIT $1");
    let args = vec![SqlArg::Int(limit.into())];
    db.query("reading the inbox", &sql, args).await?.iter_mut().map(read_inbox_row).collect()
}

/// Counts waiting and rejected rows.
pub(crate) async fn count_rows(db: &DbPool) -> Result<(u64, u64), StoreError> {
    let sql = "SELECT count(*), count(refused) FROM inbox";
    let found = db.query("counting the inbox", sql, Vec::new()).await?;
    let count = |at| found.first().map_or(Ok(0), |row| row.get_u64(at));
    let (all, refused) = (count(0)?, count(1)?);
    Ok((all.saturating_sub(refused), refused))
}
