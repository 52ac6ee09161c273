//! The archive's part of the store on SQL.

use docket_schema::{
    ids::{StreamId, Timestamp},
    system::StreamsArchived,
    wire::{ArchivedTaskPage, ArchivedTaskQuery},
};
use uuid::Uuid;

use super::SqlStore;
use crate::store::{
    AfterEnded, ArchiveError, Archives, Ended, Queues, Restore, RestoreError, StoreError, StoreFuture, Stub,
    archive::{find_stub, list_archived_tasks, list_ended, list_stubs},
    writer::{RemoveStreams, RestoreStreams},
};

impl Archives for SqlStore {
    fn ended(
        &self,
        before: Timestamp,
        queues: Queues,
        after: Option<AfterEnded>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Ended>, StoreError>> {
        Box::pin(list_ended(&self.db, before, queues, after, limit))
    }

    fn remove(&self, archived: StreamsArchived, now: Timestamp) -> StoreFuture<'_, Result<(), ArchiveError>> {
        Box::pin(self.write(RemoveStreams { archived, now }))
    }

    fn restore(&self, restore: Restore, now: Timestamp) -> StoreFuture<'_, Result<(), RestoreError>> {
        Box::pin(self.write(RestoreStreams { restore, now }))
    }

    fn stubs(&self, after: Option<StreamId>, limit: u32) -> StoreFuture<'_, Result<Vec<Stub>, StoreError>> {
        Box::pin(list_stubs(&self.db, after, limit))
    }

    fn archived_tasks(
        &self,
        query: ArchivedTaskQuery,
    ) -> StoreFuture<'_, Result<ArchivedTaskPage, StoreError>> {
        Box::pin(list_archived_tasks(&self.db, query))
    }

    fn stub(&self, id: Uuid) -> StoreFuture<'_, Result<Option<Stub>, StoreError>> {
        Box::pin(find_stub(&self.db, id))
    }
}
