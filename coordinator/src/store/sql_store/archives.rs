//! [`ArchiveStore`] on SQL.

use docket_schema::{
    api::{ArchivedTaskPage, ArchivedTaskQuery},
    ids::{StreamId, Timestamp},
    system::StreamsArchived,
};
use uuid::Uuid;

use super::SqlStore;
use crate::store::{
    ArchiveError, ArchiveStore, ArchiveStub, EndedTask, EndedTaskCursor, QueueSelection, RestoreError,
    RestoreRequest, StoreError, StoreFuture,
    archive::{find_stub, list_archived_tasks, list_ended_tasks, list_stubs},
    writer::{RemoveStreams, RestoreStreams},
};

impl ArchiveStore for SqlStore {
    fn list_ended_tasks(
        &self,
        before: Timestamp,
        queues: QueueSelection,
        after: Option<EndedTaskCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<EndedTask>, StoreError>> {
        Box::pin(list_ended_tasks(&self.pool, before, queues, after, limit))
    }

    fn remove_archived(
        &self,
        archived: StreamsArchived,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), ArchiveError>> {
        Box::pin(self.execute_write(RemoveStreams { archived, now }))
    }

    fn restore_streams(
        &self,
        restore: RestoreRequest,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), RestoreError>> {
        Box::pin(self.execute_write(RestoreStreams { restore, now }))
    }

    fn list_stubs(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<ArchiveStub>, StoreError>> {
        Box::pin(list_stubs(&self.pool, after, limit))
    }

    fn list_archived_tasks(
        &self,
        query: ArchivedTaskQuery,
    ) -> StoreFuture<'_, Result<ArchivedTaskPage, StoreError>> {
        Box::pin(list_archived_tasks(&self.pool, query))
    }

    fn find_stub(&self, id: Uuid) -> StoreFuture<'_, Result<Option<ArchiveStub>, StoreError>> {
        Box::pin(find_stub(&self.pool, id))
    }
}
