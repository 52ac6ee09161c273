//! [`EventLog`] on SQL.

use docket_schema::{
    event::{Envelope, Head},
    ids::{Position, Seq, StreamId, Timestamp},
};

use super::SqlStore;
use crate::store::{
    AppendError, AppendOutcome, EventLog, EventVisitor, ImportError, ImportOutcome, LogAppend, RunImport,
    StoreError, StoreFuture,
    queries::log,
    writer::{AppendCommand, ImportStreams},
};

impl EventLog for SqlStore {
    fn append(&self, append: LogAppend) -> StoreFuture<'_, Result<AppendOutcome, AppendError>> {
        Box::pin(async move {
            let LogAppend { stream, condition, events, blobs, required_blobs: names, now } = append;
            let blobs = self.pack_blobs(blobs, now).await?;
            self.execute_write(AppendCommand { stream, condition, events, blobs, required_blobs: names, now })
                .await
        })
    }

    fn read_events(
        &self,
        stream: StreamId,
        after: Seq,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_events(&self.pool, stream, after, limit))
    }

    fn scan_events(
        &self,
        stream: StreamId,
        after: Seq,
        each: EventVisitor,
    ) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(log::scan_events(&self.pool, stream, after, each))
    }

    fn stream_head(&self, stream: StreamId) -> StoreFuture<'_, Result<Option<Head>, StoreError>> {
        Box::pin(log::read_head(&self.pool, stream))
    }

    fn read_log(&self, after: Position, limit: u32) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_log(&self.pool, after, limit))
    }

    fn read_committed_events(
        &self,
        after: Position,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_committed(&self.pool, after, limit))
    }

    fn list_streams(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(StreamId, Head)>, StoreError>> {
        Box::pin(log::list_streams(&self.pool, after, limit))
    }

    fn import_run(
        &self,
        import: RunImport,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<ImportOutcome, ImportError>> {
        Box::pin(self.execute_write(ImportStreams { import, now }))
    }
}
