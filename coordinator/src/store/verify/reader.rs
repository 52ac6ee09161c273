//! Source of the log during verification.

use std::future::Future;

use docket_schema::{
    event::Head,
    ids::{BlobHash, Seq, StreamId},
};

use crate::store::{BlobStore, EventLog, EventVisitor, Store, StoreError};

/// A source of a log's events.
pub trait LogReader: Sync {
    /// Error of a failed read.
    type Error: Send;

    /// Whether a second thread saves time, because reading is cheap compared with processing.
    fn should_fold_in_parallel(&self) -> bool;

    /// Describes the log's fault if that caused the error; other errors are returned.
    ///
    /// # Errors
    /// The error itself.
    fn into_corruption(error: Self::Error) -> Result<String, Self::Error>;

    /// Like [`EventLog::stream_head`].
    fn stream_head(&self, stream: StreamId)
    -> impl Future<Output = Result<Option<Head>, Self::Error>> + Send;

    /// Like [`EventLog::scan_events`].
    fn scan_events(
        &self,
        stream: StreamId,
        after: Seq,
        each: EventVisitor,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Like [`BlobStore::find_present_blobs`].
    fn find_present_blobs(
        &self,
        hashes: Vec<BlobHash>,
    ) -> impl Future<Output = Result<Vec<BlobHash>, Self::Error>> + Send;
}

impl LogReader for dyn Store + '_ {
    type Error = StoreError;

    fn should_fold_in_parallel(&self) -> bool {
        true
    }

    fn into_corruption(error: StoreError) -> Result<String, StoreError> {
        match error {
            StoreError::Corrupt { what } => Ok(what),
            other => Err(other),
        }
    }

    async fn stream_head(&self, stream: StreamId) -> Result<Option<Head>, StoreError> {
        EventLog::stream_head(self, stream).await
    }

    async fn scan_events(&self, stream: StreamId, after: Seq, each: EventVisitor) -> Result<(), StoreError> {
        EventLog::scan_events(self, stream, after, each).await
    }

    async fn find_present_blobs(&self, hashes: Vec<BlobHash>) -> Result<Vec<BlobHash>, StoreError> {
        BlobStore::find_present_blobs(self, hashes).await
    }
}
