//! Blob access for the workspace code, through traits that the caller implements.
//!
//! The workspace code knows no coordinator. Its caller passes in a reader ([`BlobReader`]) or a sink
//! ([`BlobSink`]), and sends the [`PendingBlobs`] of a snapshot together with its append.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    future::Future,
};

use bytes::Bytes;
use docket_schema::{content::BlobRef, ids::BlobHash};

/// Why a blob could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store does not have the blob.
    #[error(
        "blob {0} is missing: the store lost it or it was never uploaded; `docket verify` lists other missing blobs"
    )]
    Missing(BlobHash),
    /// The received bytes do not match the reference.
    #[error("blob {0} is damaged: its bytes do not match its hash; `docket verify` lists other damage")]
    Damaged(BlobHash),
    /// The store could not be reached.
    #[error("the blob store did not respond; try again when it is reachable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

pub trait BlobReader: Sync {
    /// Returns the bytes of `blob`. Callers check them against the reference.
    ///
    /// # Errors
    /// [`BlobError`] if the blob is missing or the store is unavailable.
    fn get(&self, blob: &BlobRef) -> impl Future<Output = Result<Bytes, BlobError>> + Send;
}

/// Stores blobs one by one, so that a large base is never held in memory as a whole.
pub trait BlobSink: Send {
    /// Stores `bytes`, whose reference is `blob`.
    ///
    /// # Errors
    /// [`BlobError::Unavailable`] if the store cannot be reached.
    fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> impl Future<Output = Result<(), BlobError>> + Send;
}

/// Reads a blob and verifies its hash and size.
pub(super) async fn get_verified(blobs: &impl BlobReader, blob: &BlobRef) -> Result<Bytes, BlobError> {
    let bytes = blobs.get(blob).await?;
    if BlobRef::for_bytes(&bytes) == *blob { Ok(bytes) } else { Err(BlobError::Damaged(blob.hash)) }
}

/// Blobs that the caller must send with the append that references them; each content once.
#[derive(Debug, Default)]
pub struct PendingBlobs {
    blobs: Vec<(BlobRef, Vec<u8>)>,
    seen: BTreeSet<BlobHash>,
    bytes: u64,
}

impl PendingBlobs {
    pub(super) fn push(&mut self, blob: BlobRef, bytes: Vec<u8>) {
        if self.seen.insert(blob.hash) {
            self.bytes += blob.bytes;
            self.blobs.push((blob, bytes));
        }
    }

    pub(super) fn retain(&mut self, mut named: impl FnMut(&BlobRef) -> bool) {
        let all = std::mem::take(self);
        all.blobs
            .into_iter()
            .filter(|(blob, _)| named(blob))
            .for_each(|(blob, bytes)| self.push(blob, bytes));
    }

    /// The blobs, in the order in which the snapshot found them.
    pub fn into_vec(self) -> Vec<(BlobRef, Vec<u8>)> {
        self.blobs
    }

    pub fn iter(&self) -> impl Iterator<Item = &(BlobRef, Vec<u8>)> {
        self.blobs.iter()
    }

    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// The combined size of all blobs, in bytes.
    pub const fn total_bytes(&self) -> u64 {
        self.bytes
    }
}

/// An in-memory blob store, for small bases that are sent with a request and for tests.
#[derive(Debug, Default, Clone)]
pub struct MemoryBlobs {
    blobs: BTreeMap<BlobHash, Bytes>,
}

impl MemoryBlobs {
    pub fn extend(&mut self, pending: PendingBlobs) {
        self.blobs.extend(pending.blobs.into_iter().map(|(blob, bytes)| (blob.hash, Bytes::from(bytes))));
    }

    /// The number of distinct blobs.
    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
}

impl BlobReader for MemoryBlobs {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        self.blobs.get(&blob.hash).cloned().ok_or(BlobError::Missing(blob.hash))
    }
}

impl BlobSink for MemoryBlobs {
    async fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.blobs.insert(blob.hash, Bytes::from(bytes));
        Ok(())
    }
}
