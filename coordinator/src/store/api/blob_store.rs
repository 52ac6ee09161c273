//! Blobs: bytes out of line, named by their hash.

use bytes::Bytes;
use docket_schema::{
    api::BlobCheckResponse,
    content::BlobRef,
    ids::{BlobHash, Timestamp},
};

use super::{StoreError, StoreFuture};

/// A blob on its way in. Hash and size were checked against the bytes.
#[derive(Debug, Clone)]
pub struct NewBlob {
    /// Its name.
    pub blob: BlobRef,
    /// Its bytes, uncompressed.
    pub bytes: Bytes,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobTotals {
    /// Blobs.
    pub blobs: u64,
    /// Their uncompressed sizes together, in bytes.
    pub bytes: u64,
}

/// Where large blobs are stored instead of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalBlobSettings {
    /// `file:///FOLDER` or `s3://BUCKET/PREFIX`.
    pub url: String,
    /// From which size on, in bytes.
    pub min_bytes: u64,
}

/// Stores blobs and reads them.
///
/// Errors: [`StoreError`] alone; bytes that do not have their hash are [`StoreError::Corrupt`], never answered.
///
/// Invariants: a blob never changes. A transaction that names a blob keeps it from garbage collection, so a blob that an
/// event names is stored; see [`BlobStore::drop_blobs`] for what the collector has to respect.
pub trait BlobStore {
    /// Stores blobs; those that are there are only touched.
    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> StoreFuture<'_, Result<(), StoreError>>;

    /// A blob's bytes, uncompressed and checked against its hash.
    fn read_blob(&self, hash: BlobHash) -> StoreFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Reads stored blobs in the order of their hashes, from the one after `after`, and hashes them
    /// again: as many as make a part of bounded size.
    fn check_blobs(&self, after: Option<BlobHash>) -> StoreFuture<'_, Result<BlobCheckResponse, StoreError>>;

    /// Which of these are stored.
    fn find_present_blobs(&self, hashes: Vec<BlobHash>)
    -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>>;

    /// Which of these are stored; those are kept from garbage collection as if they had just been stored.
    fn touch_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>>;

    /// How much is stored.
    fn blob_totals(&self) -> StoreFuture<'_, Result<BlobTotals, StoreError>>;

    /// Blobs not touched since `since`, after `after` in order of their hashes, at most `limit`.
    fn list_untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Drops those of `hashes` that were not touched since `since` and that no transaction is about to
    /// name; answers them. `since` must be before the log was read for the names in it, by more than an
    /// hour: [`crate::gc`] is the caller.
    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Files of blobs outside of the database which no row names and that were written before `since`:
    /// how many, and their bytes; and deletes them if `delete` says so. `since` as for [`BlobStore::drop_blobs`].
    fn sweep_stray_blobs(
        &self,
        since: Timestamp,
        delete: bool,
    ) -> StoreFuture<'_, Result<(u64, u64), StoreError>>;
}
