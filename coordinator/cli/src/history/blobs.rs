//! The coordinator's blobs, for code of the worker that reads and writes them.

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    snapshot::{Entry, EntryKind},
};
use docket_worker::{
    client::Client,
    workspace::{BlobError, BlobSink, Blobs, Contents, ContentsError},
};

/// Blobs wait here until they make an upload worth its round trip.
const UPLOAD_BYTES: u64 = 8 * 1024 * 1024;

/// A coordinator's blobs, read.
pub(crate) struct Remote<'a>(pub(crate) &'a Client);

impl Blobs for Remote<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        self.0.get_blob(blob).await.map_err(|error| match error.code() {
            Some(docket_schema::wire::ProblemCode::NotFound) => BlobError::Missing(blob.hash),
            Some(_) | None => BlobError::Unavailable(Box::new(error)),
        })
    }
}

/// A coordinator's blobs, written; [`Upload::flush`] sends the last of them.
pub(crate) struct Upload<'a> {
    client: &'a Client,
    waiting: Vec<(BlobRef, Bytes)>,
    bytes: u64,
}

impl<'a> Upload<'a> {
    /// An upload to this coordinator.
    pub(crate) const fn new(client: &'a Client) -> Self {
        Self { client, waiting: Vec::new(), bytes: 0 }
    }

    /// Sends what waits.
    pub(crate) async fn flush(&mut self) -> Result<(), BlobError> {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.client.upload_all(waiting).await.map_err(|error| BlobError::Unavailable(Box::new(error)))
    }
}

impl BlobSink for Upload<'_> {
    async fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.bytes += blob.bytes;
        self.waiting.push((blob, bytes.into()));
        if self.bytes >= UPLOAD_BYTES { self.flush().await } else { Ok(()) }
    }
}

/// What is not among one base's objects: among the other's, or a blob.
pub(crate) struct Beside<'a>(pub(crate) Contents<'a, Remote<'a>>);

impl Blobs for Beside<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        let entry = Entry { kind: EntryKind::File, mode: 0, size: blob.bytes, hash: blob.hash };
        self.0.read(&entry).await.map_err(|error| match error {
            ContentsError::Blob(error) => error,
            ContentsError::Git(error) => BlobError::Unavailable(Box::new(error)),
        })
    }
}
