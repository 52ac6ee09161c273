//! The log on SQL.

use docket_schema::{
    event::{Envelope, Head},
    ids::{Position, Seq, StreamId, Timestamp},
};

use super::SqlStore;
use crate::store::{
    Append, AppendError, Appended, EachEvent, EventLog, Import, ImportError, Imported, StoreError,
    StoreFuture,
    queries::log,
    writer::{AppendCommand, ImportStreams},
};

impl EventLog for SqlStore {
    fn append(&self, append: Append) -> StoreFuture<'_, Result<Appended, AppendError>> {
        Box::pin(async move {
            let Append { stream, condition, events, blobs, names, now } = append;
            let blobs = self.pack(blobs, now).await?;
            self.write(AppendCommand { stream, condition, events, blobs, names, now }).await
        })
    }

    fn read(
        &self,
        stream: StreamId,
        after: Seq,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_events(&self.db, stream, after, limit))
    }

    fn scan(&self, stream: StreamId, after: Seq, each: EachEvent) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(log::scan_events(&self.db, stream, after, each))
    }

    fn head(&self, stream: StreamId) -> StoreFuture<'_, Result<Option<Head>, StoreError>> {
        Box::pin(log::read_head(&self.db, stream))
    }

    fn feed(&self, after: Position, limit: u32) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_feed(&self.db, after, limit))
    }

    fn committed_events(
        &self,
        after: Position,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(log::read_committed(&self.db, after, limit))
    }

    fn streams(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(StreamId, Head)>, StoreError>> {
        Box::pin(log::list_streams(&self.db, after, limit))
    }

    fn import(&self, import: Import, now: Timestamp) -> StoreFuture<'_, Result<Imported, ImportError>> {
        Box::pin(self.write(ImportStreams { import, now }))
    }
}
