//! Where a log is read from while it is walked.

use std::future::Future;

use docket_schema::{
    event::Head,
    ids::{BlobHash, Seq, StreamId},
};

use crate::store::{BlobStore, EachEvent, EventLog, Store, StoreError};

/// A source of the events of a log.
pub trait LogReader: Sync {
    /// Why it cannot be read.
    type Error: Send;

    /// Whether a second thread saves time: where reading costs little compared with the work on what was read.
    fn beside(&self) -> bool;

    /// What is wrong with the log, in words, if that caused the error; other errors are given back.
    ///
    /// # Errors
    /// The error itself.
    fn altered(error: Self::Error) -> Result<String, Self::Error>;

    /// As [`EventLog::head`].
    fn head(&self, stream: StreamId) -> impl Future<Output = Result<Option<Head>, Self::Error>> + Send;

    /// As [`EventLog::scan`].
    fn scan(
        &self,
        stream: StreamId,
        after: Seq,
        each: EachEvent,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// As [`BlobStore::blobs_present`].
    fn blobs_present(
        &self,
        hashes: Vec<BlobHash>,
    ) -> impl Future<Output = Result<Vec<BlobHash>, Self::Error>> + Send;
}

impl LogReader for dyn Store + '_ {
    type Error = StoreError;

    fn beside(&self) -> bool {
        true
    }

    fn altered(error: StoreError) -> Result<String, StoreError> {
        match error {
            StoreError::Corrupt { what } => Ok(what),
            other => Err(other),
        }
    }

    async fn head(&self, stream: StreamId) -> Result<Option<Head>, StoreError> {
        EventLog::head(self, stream).await
    }

    async fn scan(&self, stream: StreamId, after: Seq, each: EachEvent) -> Result<(), StoreError> {
        EventLog::scan(self, stream, after, each).await
    }

    async fn blobs_present(&self, hashes: Vec<BlobHash>) -> Result<Vec<BlobHash>, StoreError> {
        BlobStore::blobs_present(self, hashes).await
    }
}
