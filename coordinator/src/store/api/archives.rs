//! The archive's part of a store: streams that leave the log, and their stubs.

use docket_schema::{
    api::{ArchivedTaskPage, ArchivedTaskQuery},
    event::{Envelope, Head},
    ids::{BlobHash, QueueName, StreamId, TaskId, Timestamp},
    system::{ArchivedTask, StreamsArchived, TaskRunRef},
};
use uuid::Uuid;

use super::{StoreError, StoreFuture};

/// A stream that is archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveStub {
    /// Which.
    pub stream: StreamId,
    /// Its last event.
    pub head: Head,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Where the archive is.
    pub location: String,
    /// The file's name there.
    pub file: String,
    /// BLAKE3 of the file.
    pub file_hash: BlobHash,
    /// Its size.
    pub file_bytes: u64,
    /// The fields of a task that the store keeps.
    pub task: Option<Box<ArchivedTask>>,
}

/// A task whose retention may be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    /// Which.
    pub task: TaskId,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Of which queue.
    pub queue: QueueName,
}

/// The last task of a page of such tasks.
pub type EndedTaskCursor = (Timestamp, TaskId);

/// The queues whose tasks are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueSelection {
    /// This one.
    Only(QueueName),
    /// All but these.
    AllBut(Vec<QueueName>),
}

/// Why a family stays. Nothing was removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    /// It is not there: another coordinator archived it, or it never existed.
    #[error("{0} is not here any more")]
    NotFound(StreamId),
    /// Events were appended since it was copied.
    #[error("{0} went on while it was copied")]
    ChangedSinceCopy(StreamId),
    /// The task has not ended, or not long ago.
    #[error("task {0} has not ended")]
    TaskNotEnded(TaskId),
    /// A run may still be written to.
    #[error("{0} is not closed")]
    StreamNotClosed(StreamId),
    /// A run that is not in the file shares the history of one that is.
    #[error("another run stands on {0}")]
    HasDescendant(StreamId),
    /// A task that has not ended waits for it, and keeps waiting because it failed.
    #[error("another task waits for task {0}, which may be retried yet")]
    HasDependent(TaskId),
    /// It cannot be part of a family.
    #[error("{0} is no stream that can be archived")]
    NotArchivable(StreamId),
}

/// A refusal, or the store's fault.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It stays.
    #[error(transparent)]
    Refused(#[from] ArchiveRefusal),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A family that comes back from a file, checked. Its blobs must be stored.
#[derive(Debug, Clone)]
pub struct RestoreRequest {
    /// Its first task.
    pub task: TaskId,
    /// Who brings it back.
    pub by: String,
    /// Its streams in the order of the file.
    pub streams: Vec<RestoreStream>,
    /// The blobs that they need.
    pub required_blobs: Vec<BlobHash>,
    /// Where it comes to.
    pub destination: RestoreDestination,
}

/// Where a family comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreDestination {
    /// The log it left: a stub stands for each of its streams.
    OriginalLog,
    /// A store of its own, to be looked at.
    ScratchStore,
}

/// A stream that comes back.
#[derive(Debug, Clone)]
pub struct RestoreStream {
    /// Which.
    pub stream: StreamId,
    /// For a run: its place in its task.
    pub run_of: Option<TaskRunRef>,
    /// Its events from the first on, at least one.
    pub events: Vec<Envelope>,
}

/// A family that did not come back. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It has no stub, or one of another head.
    #[error("{0} is not archived with this history; it may have been brought back already")]
    NotArchived(StreamId),
    /// It is here.
    #[error("{0} is here already")]
    AlreadyPresent(StreamId),
    /// A needed blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Moves streams out of the log and back, and reads the stubs that replace archived streams.
///
/// Errors: a removal or return that is refused says why ([`ArchiveError`], [`RestoreError`]) and writes nothing.
///
/// Invariants: what shares history leaves and comes back together, each in one transaction. No event is deleted without a
/// stub of its stream's very head, and the stubs can be derived from `system/archive`.
pub trait ArchiveStore {
    /// Tasks that ended before `before`, oldest end first, after `after`.
    fn list_ended_tasks(
        &self,
        before: Timestamp,
        queues: QueueSelection,
        after: Option<EndedTaskCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<EndedTask>, StoreError>>;

    /// Removes a family of streams that was copied and read back, all of it or nothing, records it, and
    /// leaves a stub for each.
    fn remove_archived(
        &self,
        archived: StreamsArchived,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), ArchiveError>>;

    /// Writes a family of streams as they were, all of it or nothing, and records it.
    fn restore_streams(
        &self,
        restore: RestoreRequest,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), RestoreError>>;

    /// Stubs of archived streams, after `after` in order of their names.
    fn list_stubs(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<ArchiveStub>, StoreError>>;

    /// Archived tasks, newest first.
    fn list_archived_tasks(
        &self,
        query: ArchivedTaskQuery,
    ) -> StoreFuture<'_, Result<ArchivedTaskPage, StoreError>>;

    /// The stub of a task or run.
    fn find_stub(&self, id: Uuid) -> StoreFuture<'_, Result<Option<ArchiveStub>, StoreError>>;
}
