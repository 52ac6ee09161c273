//! Adapters that let worker code read and write the coordinator's blobs.

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    snapshot::{Entry, EntryKind},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{BlobError, BlobReader, BlobSink, ContentReader, ContentsError},
};

/// Blobs are collected up to this size, so that an upload is worth its round trip.
const UPLOAD_BATCH_BYTES: u64 = 8 * 1024 * 1024;

/// Reads blobs of a coordinator.
pub(crate) struct RemoteBlobs<'a>(pub(crate) &'a CoordinatorClient);

impl BlobReader for RemoteBlobs<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        self.0.get_blob(blob).await.map_err(|error| match error.problem_code() {
            Some(docket_schema::api::ProblemCode::NotFound) => BlobError::Missing(blob.hash),
            Some(_) | None => BlobError::Unavailable(Box::new(error)),
        })
    }
}

/// Writes blobs to a coordinator; [`BlobUpload::flush`] sends the last of them.
pub(crate) struct BlobUpload<'a> {
    client: &'a CoordinatorClient,
    pending: Vec<(BlobRef, Bytes)>,
    bytes: u64,
}

impl<'a> BlobUpload<'a> {
    /// Creates an upload to this coordinator.
    pub(crate) const fn new(client: &'a CoordinatorClient) -> Self {
        Self { client, pending: Vec::new(), bytes: 0 }
    }

    /// Sends the pending blobs.
    pub(crate) async fn flush(&mut self) -> Result<(), BlobError> {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.pending);
        self.client
            .upload_missing_blobs(waiting)
            .await
            .map_err(|error| BlobError::Unavailable(Box::new(error)))
    }
}

impl BlobSink for BlobUpload<'_> {
    async fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.bytes += blob.bytes;
        self.pending.push((blob, bytes.into()));
        if self.bytes >= UPLOAD_BATCH_BYTES { self.flush().await } else { Ok(()) }
    }
}

/// Falls back to the other base's objects, then to blobs, for content missing from one base.
pub(crate) struct FallbackBlobs<'a>(pub(crate) ContentReader<'a, RemoteBlobs<'a>>);

impl BlobReader for FallbackBlobs<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        let entry = Entry { kind: EntryKind::File, mode: 0, size: blob.bytes, hash: blob.hash };
        self.0.read_entry(&entry).await.map_err(|error| match error {
            ContentsError::Blob(error) => error,
            ContentsError::Git(error) => BlobError::Unavailable(Box::new(error)),
        })
    }
}
