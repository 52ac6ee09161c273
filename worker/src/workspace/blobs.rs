//! How content reaches and leaves the workspace code: by reference, through traits the caller implements.
//!
//! The workspace knows no coordinator. Whoever calls it hands in a reader ([`Blobs`]) or a sink
//! ([`BlobSink`]), and ships the [`PendingBlobs`] of a snapshot together with its append.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    future::Future,
};

use bytes::Bytes;
use docket_schema::{content::BlobRef, ids::BlobHash};

/// Why a blob did not come, or did not go.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store does not hold it.
    #[error(
        "blob {0} is missing: the store lost it, or it was never sent; `docket verify` names what else is gone"
    )]
    Missing(BlobHash),
    /// The bytes that came are not those of the reference.
    #[error("blob {0} is damaged: its bytes have another hash; `docket verify` names what else is")]
    Damaged(BlobHash),
    /// The store could not be asked.
    #[error("the blob store did not answer; try again once it is reachable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Reads blobs.
pub trait BlobReader: Sync {
    /// The bytes of `blob`. Callers check them against the reference.
    ///
    /// # Errors
    /// [`BlobError`].
    fn get(&self, blob: &BlobRef) -> impl Future<Output = Result<Bytes, BlobError>> + Send;
}

/// Takes blobs one by one, so that a large base never stands in memory as a whole.
pub trait BlobSink: Send {
    /// Stores `bytes`, whose reference is `blob`.
    ///
    /// # Errors
    /// [`BlobError::Unavailable`].
    fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> impl Future<Output = Result<(), BlobError>> + Send;
}

/// Reads a blob and checks that it is the one asked for.
pub(super) async fn get_verified(blobs: &impl BlobReader, blob: &BlobRef) -> Result<Bytes, BlobError> {
    let bytes = blobs.get(blob).await?;
    if BlobRef::for_bytes(&bytes) == *blob { Ok(bytes) } else { Err(BlobError::Damaged(blob.hash)) }
}

/// Blobs that the caller must ship with the append that names them; each content once.
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

    /// The blobs in the order in which the snapshot met them.
    pub fn into_vec(self) -> Vec<(BlobRef, Vec<u8>)> {
        self.blobs
    }

    /// The blobs, borrowed.
    pub fn iter(&self) -> impl Iterator<Item = &(BlobRef, Vec<u8>)> {
        self.blobs.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Their sizes together, in bytes.
    pub const fn total_bytes(&self) -> u64 {
        self.bytes
    }
}

/// A store in memory: for small bases that travel with a request, and for tests.
#[derive(Debug, Default, Clone)]
pub struct MemoryBlobs {
    blobs: BTreeMap<BlobHash, Bytes>,
}

impl MemoryBlobs {
    /// Adds all of `pending`.
    pub fn extend(&mut self, pending: PendingBlobs) {
        self.blobs.extend(pending.blobs.into_iter().map(|(blob, bytes)| (blob.hash, Bytes::from(bytes))));
    }

    /// How many distinct blobs it holds.
    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    /// Whether it holds none.
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
