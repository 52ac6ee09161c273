//! Reads of blobs, from the database or from the files that their rows name. All content is verified against
//! its hash.

use bytes::Bytes;
use docket_schema::{api::BlobCheckResponse, ids::BlobHash};

use super::external_blobs::{ExternalBlobStore, external_file_name, not_configured_error};
use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{DbPool, SqlArg, SqlDialect},
};

/// Largest uncompressed blob, in bytes: twice the largest request body.
const BLOB_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Blobs checked per call, and their stored size: each call is one request's work.
const CHECKED_BLOBS_MAX: i64 = 1000;
const CHECKED_BYTES_MAX: i64 = 16 * 1024 * 1024;

/// Returns a blob's verified content; `None` if it is not stored.
pub(crate) async fn read_blob(
    db: &DbPool,
    external: Option<&ExternalBlobStore>,
    hash: BlobHash,
) -> Result<Option<Bytes>, StoreError> {
    let sql = "SELECT size, data FROM blobs WHERE hash = $1";
    let mut found = db.query("reading a blob", sql, vec![SqlArg::Hash(hash.0)]).await?;
    let Some(row) = found.first_mut() else { return Ok(None) };
    let (size, data) = (row.get_i64(0)?, row.get_blob(1)?);
    let corrupt = |what: &str| corrupt_error(format!("blob {hash}: {what}"));
    let data = match external_file_name(&data) {
        None => data.into(),
        Some(file) => {
            let external = external.ok_or_else(not_configured_error)?;
            let lost = || corrupt(&format!("its file {file} is not in {}", external.url()));
            external.read_file(file).await?.ok_or_else(lost)?
        }
    };
    match unpack_blob(hash, size, &data) {
        Some(bytes) => Ok(Some(bytes.into())),
        None => Err(corrupt("its content does not match its hash")),
    }
}

/// Decompresses a stored blob; `None` if its hash or size does not match.
fn unpack_blob(hash: BlobHash, size: i64, data: &[u8]) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok().filter(|size| *size <= BLOB_BYTES_MAX)?;
    // The frame states its content size, so an altered size is detected before memory is allocated.
    let framed = zstd::zstd_safe::get_frame_content_size(data).ok().flatten();
    if framed.is_some_and(|framed| framed != size as u64) {
        return None;
    }
    let bytes = zstd::bulk::decompress(data, size).ok()?;
    (bytes.len() == size && BlobHash::hash_bytes(&bytes) == hash).then_some(bytes)
}

/// Runs SQLite's integrity check of tables and indexes. A read by an index does not compare the indexed
/// values with the row's own copy, so nothing else would detect a difference.
async fn check_integrity(db: &DbPool) -> Result<Vec<String>, StoreError> {
    let mut found = db.query("checking the database", "PRAGMA integrity_check(20)", Vec::new()).await?;
    let mut said = Vec::new();
    for row in &mut found {
        let line = row.get_text(0)?;
        if line != "ok" {
            said.push(line);
        }
    }
    Ok(said)
}

/// See [`crate::store::BlobStore::check_blobs`].
pub(crate) async fn check_blobs(
    db: &DbPool,
    external: Option<&ExternalBlobStore>,
    after: Option<BlobHash>,
) -> Result<BlobCheckResponse, StoreError> {
    const DOING: &str = "checking blobs";
    let storage = match db.dialect() {
        SqlDialect::Sqlite if after.is_none() => check_integrity(db).await?,
        SqlDialect::Sqlite | SqlDialect::Postgres => Vec::new(),
    };
    // Sizes first, so that a part stays within its bounds; the first blob is taken whatever its size. An
    // external blob's row holds a name, which is read with a file of at most the blob's size.
    let sql = match external {
        None => "SELECT hash, length(data) FROM blobs WHERE hash > $1 ORDER BY hash LIMIT $2",
        Some(_) => "SELECT hash, size FROM blobs WHERE hash > $1 ORDER BY hash LIMIT $2",
    };
    let after = after.map_or_else(Vec::new, |hash| hash.0.to_vec());
    let sizes = db.query(DOING, sql, vec![SqlArg::Blob(after), SqlArg::Int(CHECKED_BLOBS_MAX)]).await?;
    let (mut part, mut bytes) = (Vec::new(), 0);
    for mut row in sizes {
        let hash: [u8; 32] = row.get_array(0)?;
        bytes += row.get_i64(1)?;
        if bytes > CHECKED_BYTES_MAX && !part.is_empty() {
            break;
        }
        part.push(hash.to_vec());
    }
    let sql = format!("SELECT hash, size, data FROM blobs WHERE {}", db.dialect().any_blob_sql("hash", 1));
    let found = db.query(DOING, &sql, vec![SqlArg::Blobs(part)]).await?;
    let mut check = BlobCheckResponse { storage, ..BlobCheckResponse::default() };
    let mut read: Vec<(BlobHash, i64, Bytes)> = Vec::new();
    for mut row in found {
        let (hash, size, data) = (BlobHash(row.get_array(0)?), row.get_i64(1)?, row.get_blob(2)?);
        check.next = check.next.max(Some(hash));
        let Some(file) = external_file_name(&data) else {
            read.push((hash, size, data.into()));
            continue;
        };
        let external = external.ok_or_else(not_configured_error)?;
        match external.read_file(file).await? {
            Some(data) => read.push((hash, size, data)),
            None => check.lost.push(format!("blob {hash}: its file {file} is not in {}", external.url())),
        }
    }
    let check = move || {
        for (hash, size, data) in read {
            check.checked += 1;
            if unpack_blob(hash, size, &data).is_none() {
                check.damaged.push(hash);
            }
        }
        check.damaged.sort_unstable();
        Ok(check)
    };
    // Hashing megabytes must not block the threads that serve requests.
    let checked = tokio::task::spawn_blocking(check).await;
    checked.map_err(|_| StoreError::Corrupt { what: "a blob whose check was interrupted".to_owned() })?
}

/// Returns which of these are stored.
pub(crate) async fn find_present(db: &DbPool, hashes: Vec<BlobHash>) -> Result<Vec<BlobHash>, StoreError> {
    let sql = format!("SELECT hash FROM blobs WHERE {}", db.dialect().any_blob_sql("hash", 1));
    db.query("looking for blobs", &sql, vec![SqlArg::from_hashes(&hashes)])
        .await?
        .iter_mut()
        .map(|row| Ok(BlobHash(row.get_array(0)?)))
        .collect()
}
