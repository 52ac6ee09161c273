//! Blob store: content stored separately from events and addressed by its hash.

use bytes::Bytes;
use docket_schema::{
    api::BlobCheckResponse,
    content::BlobRef,
    ids::{BlobHash, Timestamp},
};

use super::{StoreError, StoreFuture};

/// A blob to be stored. Hash and size were verified against the bytes.
#[derive(Debug, Clone)]
pub struct NewBlob {
    /// Hash and size.
    pub blob: BlobRef,
    /// Uncompressed content.
    pub bytes: Bytes,
}

/// Totals of stored blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobTotals {
    /// Blobs.
    pub blobs: u64,
    /// Total uncompressed size, in bytes.
    pub bytes: u64,
}

/// Storage of large blobs outside the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalBlobSettings {
    /// `file:///FOLDER` or `s3://BUCKET/PREFIX`.
    pub url: String,
    /// Minimum size of an external blob, in bytes.
    pub min_bytes: u64,
}

/// Stores and reads blobs.
///
/// Errors: only [`StoreError`]; content that does not match its hash is [`StoreError::Corrupt`] and is never
/// returned.
///
/// Invariants: a blob never changes. A transaction that references a blob protects it from garbage
/// collection, so a referenced blob is always stored; see [`BlobStore::drop_blobs`] for the collector's
/// obligations.
pub trait BlobStore {
    /// Stores blobs; existing ones are only touched.
    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Returns a blob's content, uncompressed and verified against its hash.
    fn read_blob(&self, hash: BlobHash) -> StoreFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Reads stored blobs in hash order after `after` and verifies their hashes, as many as fit into a
    /// bounded amount of work.
    fn check_blobs(&self, after: Option<BlobHash>) -> StoreFuture<'_, Result<BlobCheckResponse, StoreError>>;

    /// Returns those of `hashes` that are stored.
    fn find_present_blobs(&self, hashes: Vec<BlobHash>)
    -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>>;

    /// Returns those of the hashes that are stored, and protects them from garbage collection as if they had
    /// just been stored.
    fn touch_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>>;

    /// Returns the totals of stored blobs.
    fn blob_totals(&self) -> StoreFuture<'_, Result<BlobTotals, StoreError>>;

    /// Lists blobs not touched since `since`, after `after` by hash, at most `limit`.
    fn list_untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Deletes those of `hashes` that were not touched since `since` and that no transaction is about to
    /// reference; returns them. `since` must be at least an hour before the log was read for references; see
    /// [`crate::gc`].
    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Counts external blob files written before `since` that no row references, with their total size;
    /// deletes them if `delete` is set. `since` as for [`BlobStore::drop_blobs`].
    fn sweep_stray_blobs(
        &self,
        since: Timestamp,
        delete: bool,
    ) -> StoreFuture<'_, Result<(u64, u64), StoreError>>;
}
