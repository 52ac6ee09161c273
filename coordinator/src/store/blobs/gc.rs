//! Blobs not touched for a while, and deletion of those that no event references.
//!
//! [`crate::gc`] determines from the log which blobs are referenced. This module prevents the race with new
//! references: every transaction that references a blob locks it and touches it unless it was touched within
//! [`TOUCH_INTERVAL_MS`], and a deletion takes only blobs that are unlocked and were not touched since before
//! that. So a blob referenced after the log was read is never deleted, and an append that comes after a
//! deletion finds the blob missing and reports it.

use docket_schema::{
    content::BlobRef,
    ids::{BlobHash, Timestamp},
};

use crate::store::{
    BlobTotals, StoreError,
    db::{DbConn, DbPool, SqlArg, SqlDialect, SqlRow, TransactionError},
};

/// A blob touched within this time is not touched again; gc spares everything touched within 24 h.
pub(crate) const TOUCH_INTERVAL_MS: i64 = 3_600_000;

fn read_blob_ref(row: &mut SqlRow) -> Result<BlobRef, StoreError> {
    Ok(BlobRef { hash: BlobHash(row.get_array(0)?), bytes: row.get_u64(1)? })
}

/// Counts stored blobs and their size.
pub(crate) async fn count_blobs(db: &DbPool) -> Result<BlobTotals, StoreError> {
    let sql = match db.dialect() {
        SqlDialect::Sqlite => "SELECT count(*), coalesce(sum(size), 0) FROM blobs",
        SqlDialect::Postgres => "SELECT count(*), coalesce(sum(size), 0)::bigint FROM blobs",
    };
    let found = db.query("counting blobs", sql, Vec::new()).await?;
    let count = |at| found.first().map_or(Ok(0), |row| row.get_u64(at));
    Ok(BlobTotals { blobs: count(0)?, bytes: count(1)? })
}

/// Lists blobs not touched since `since`, after `after` by hash.
pub(crate) async fn list_untouched(
    db: &DbPool,
    since: Timestamp,
    after: Option<BlobHash>,
    limit: u32,
) -> Result<Vec<BlobRef>, StoreError> {
    let sql = "SELECT hash, size FROM blobs WHERE hash > $1 AND touched_at < $2 ORDER BY hash LIMIT $3";
    let after = after.map(|hash| hash.0.to_vec()).unwrap_or_default();
    let args = vec![SqlArg::Blob(after), SqlArg::Int(since.0), SqlArg::Int(limit.into())];
    db.query("looking for untouched blobs", sql, args).await?.iter_mut().map(read_blob_ref).collect()
}

/// Returns which of `hashes` are stored and which of those were not touched recently: (stored, to be
/// touched).
pub(crate) async fn find_stored(
    db: &DbPool,
    hashes: &[BlobHash],
    now: Timestamp,
) -> Result<(Vec<BlobHash>, Vec<BlobHash>), StoreError> {
    let sql = format!("SELECT hash, touched_at FROM blobs WHERE {}", db.dialect().any_blob_sql("hash", 1));
    let before = now.0.saturating_sub(TOUCH_INTERVAL_MS * 1000);
    let (mut fresh, mut stale) = (Vec::new(), Vec::new());
    for mut row in db.query("looking for blobs", &sql, vec![SqlArg::from_hashes(hashes)]).await? {
        let touched_at = row.get_i64(1)?;
        let list = if touched_at < before { &mut stale } else { &mut fresh };
        list.push(BlobHash(row.get_array(0)?));
    }
    Ok((fresh, stale))
}

/// Deletes those of `hashes` that were not touched since `since` and that no transaction has locked; returns
/// them. Runs in a separate transaction that the caller ends.
pub(crate) async fn drop_untouched(
    conn: &mut DbConn<'_>,
    hashes: &[BlobHash],
    since: Timestamp,
) -> Result<Vec<BlobRef>, TransactionError> {
    let sql = match conn.dialect() {
        // SQLite has one writer: a transaction that references a blob was committed before, or finds it gone.
        SqlDialect::Sqlite => format!(
            "DELETE FROM blobs WHERE {} AND touched_at < $2 RETURNING hash, size",
            conn.dialect().any_blob_sql("hash", 1)
        ),
        // A locked row is being referenced, so it is skipped without waiting.
        SqlDialect::Postgres => format!(
            "DELETE FROM blobs WHERE hash IN (SELECT hash FROM blobs WHERE {} AND touched_at < $2 \
             ORDER BY hash FOR UPDATE SKIP LOCKED) RETURNING hash, size",
            conn.dialect().any_blob_sql("hash", 1)
        ),
    };
    let args = vec![SqlArg::from_hashes(hashes), SqlArg::Int(since.0)];
    Ok(conn.query_rows(&sql, args).await?.iter_mut().map(read_blob_ref).collect::<Result<_, _>>()?)
}
