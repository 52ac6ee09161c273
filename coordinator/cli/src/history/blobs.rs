//! The coordinator's blobs, for code of the worker that reads and writes them.

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    snapshot::{Entry, EntryKind},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{BlobError, BlobReader, BlobSink, ContentReader, ContentsError},
};

/// Blobs wait here until they make an upload worth its round trip.
const UPLOAD_BATCH_BYTES: u64 = 8 * 1024 * 1024;

/// A coordinator's blobs, read.
pub(crate) struct RemoteBlobs<'a>(pub(crate) &'a CoordinatorClient);

impl BlobReader for RemoteBlobs<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        self.0.get_blob(blob).await.map_err(|error| match error.problem_code() {
            Some(docket_schema::api::ProblemCode::NotFound) => BlobError::Missing(blob.hash),
            Some(_) | None => BlobError::Unavailable(Box::new(error)),
        })
    }
}

/// A coordinator's blobs, written; [`Upload::flush`] sends the last of them.
pub(crate) struct BlobUpload<'a> {
    client: &'a CoordinatorClient,
    pending: Vec<(BlobRef, Bytes)>,
    bytes: u64,
}

impl<'a> BlobUpload<'a> {
    /// An upload to this coordinator.
    pub(crate) const fn new(client: &'a CoordinatorClient) -> Self {
        Self { client, pending: Vec::new(), bytes: 0 }
    }

    /// Sends what waits.
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

/// What is not among one base's objects: among the other's, or a blob.
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
