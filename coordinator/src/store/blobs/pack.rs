//! Compression of blobs for storage.

use bytes::Bytes;
use docket_schema::ids::BlobHash;

use crate::store::{NewBlob, StoreError, api::corrupt_error};

/// zstd level. Most blobs are text of a few KiB, compressed while an append waits.
const ZSTD_LEVEL: i32 = 1;

/// Blobs up to this size, in bytes, are compressed on the calling thread: moving them to another thread costs
/// more.
const PACK_INLINE_BYTES_MAX: usize = 64 * 1024;

/// A blob as stored in its row.
#[derive(Debug, Clone)]
pub(crate) struct PackedBlob {
    pub(crate) hash: BlobHash,
    pub(crate) bytes: u64,
    pub(crate) data: Bytes,
}

/// Compresses blobs before they reach the writer, whose time all requests share.
pub(crate) async fn pack_blobs(blobs: Vec<NewBlob>) -> Result<Vec<PackedBlob>, StoreError> {
    let total: usize = blobs.iter().map(|blob| blob.bytes.len()).sum();
    if total <= PACK_INLINE_BYTES_MAX {
        return blobs.into_iter().map(pack_blob).collect();
    }
    tokio::task::spawn_blocking(move || blobs.into_iter().map(pack_blob).collect())
        .await
        .expect("compressing does not panic")
}

fn pack_blob(blob: NewBlob) -> Result<PackedBlob, StoreError> {
    let data = zstd::bulk::compress(&blob.bytes, ZSTD_LEVEL)
        .map_err(|e| corrupt_error(format!("blob {} cannot be compressed: {e}", blob.blob.hash)))?;
    Ok(PackedBlob { hash: blob.blob.hash, bytes: blob.blob.bytes, data: data.into() })
}
