//! The archive's part of a store: streams that leave the log, and the stubs that replace them.

use docket_schema::{
    api::{ArchivedTaskPage, ArchivedTaskQuery},
    event::{Envelope, Head},
    ids::{BlobHash, QueueName, StreamId, TaskId, Timestamp},
    system::{ArchivedTask, StreamsArchived, TaskRunRef},
};
use uuid::Uuid;

use super::{StoreError, StoreFuture};

/// The record of an archived stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveStub {
    pub stream: StreamId,
    /// Its last event.
    pub head: Head,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Location of the archive.
    pub location: String,
    /// Name of the file there.
    pub file: String,
    /// BLAKE3 hash of the file.
    pub file_hash: BlobHash,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Retained fields, if it is a task.
    pub task: Option<Box<ArchivedTask>>,
}

/// A task whose retention may be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    pub task: TaskId,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its queue.
    pub queue: QueueName,
}

/// Position in the list of ended tasks: the last task of a page.
pub type EndedTaskCursor = (Timestamp, TaskId);

/// Selects the queues whose tasks are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueSelection {
    Only(QueueName),
    /// All except these.
    AllBut(Vec<QueueName>),
}

/// Why a lineage group stays in the log. Nothing was removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    /// The stream does not exist: another coordinator archived it, or it never existed.
    #[error("{0} no longer exists here")]
    NotFound(StreamId),
    /// Events were appended since the copy.
    #[error("{0} grew while it was copied")]
    ChangedSinceCopy(StreamId),
    /// The task has not ended, or only recently.
    #[error("task {0} has not ended")]
    TaskNotEnded(TaskId),
    /// The run can still be written to.
    #[error("{0} is not closed")]
    StreamNotClosed(StreamId),
    /// A run outside the file shares the history of one inside it.
    #[error("another run continues {0}")]
    HasDescendant(StreamId),
    /// An unfinished task waits for this one, and keeps waiting because it failed.
    #[error("another task depends on task {0}, which may still be retried")]
    HasDependent(TaskId),
    /// A stream of this kind cannot be archived.
    #[error("{0} is not a stream that can be archived")]
    NotArchivable(StreamId),
}

/// A refusal, or a failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The group stays in the log.
    #[error(transparent)]
    Refused(#[from] ArchiveRefusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A lineage group to be restored from a file, verified. Its blobs must be stored.
#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub task: TaskId,
    /// Who restores it.
    pub by: String,
    /// Its streams, in the order of the file.
    pub streams: Vec<RestoreStream>,
    /// Blobs that they require.
    pub required_blobs: Vec<BlobHash>,
    /// Destination of the restore.
    pub destination: RestoreDestination,
}

/// Destination of a restored group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreDestination {
    /// The log it was removed from: a stub exists for each of its streams.
    OriginalLog,
    /// A temporary store, for reading only.
    ScratchStore,
}

/// A stream to be restored.
#[derive(Debug, Clone)]
pub struct RestoreStream {
    pub stream: StreamId,
    /// For a run: its place in its task.
    pub run_of: Option<TaskRunRef>,
    pub events: Vec<Envelope>,
}

/// A restore that was refused. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The stream has no stub, or one with another head.
    #[error("{0} is not archived with this history; it may have been restored already")]
    NotArchived(StreamId),
    /// The stream already exists.
    #[error("{0} already exists here")]
    AlreadyPresent(StreamId),
    /// A required blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Moves streams out of the log and back, and reads the stubs of archived streams.
///
/// Errors: a refused removal or restore states its reason ([`ArchiveError`], [`RestoreError`]) and writes
/// nothing.
///
/// Invariants: streams that share history are removed and restored together, each in one transaction. No
/// event is deleted without a stub of its stream's exact head, and the stubs can be derived from
/// `system/archive`.
pub trait ArchiveStore {
    /// Tasks that ended before `before`, oldest end first, after `after`.
    fn list_ended_tasks(
        &self,
        before: Timestamp,
        queues: QueueSelection,
        after: Option<EndedTaskCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<EndedTask>, StoreError>>;

    /// Removes a lineage group that was copied and verified: all of it or nothing. Records the removal and
    /// leaves a stub for each stream.
    fn remove_archived(
        &self,
        archived: StreamsArchived,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), ArchiveError>>;

    /// Writes the streams of a lineage group back, all of them or none, and records it.
    fn restore_streams(
        &self,
        restore: RestoreRequest,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(), RestoreError>>;

    /// Lists stubs of archived streams after `after`, by name.
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
