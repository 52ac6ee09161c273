//! The log: streams of events, written at their heads and read in order.

use std::ops::ControlFlow;

use docket_schema::{
    event::{Envelope, EventRef, Head, NewEvent},
    ids::{BlobHash, Epoch, Position, Seq, StreamId, Timestamp},
};

use super::{AppendError, ImportError, ImportOutcome, NewBlob, RunImport, StoreError, StoreFuture};

/// Under which condition an append succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendCondition {
    /// By a lease's holder: head here, and the stream's fence open for exactly this epoch.
    LeaseHolder(Seq, Epoch),
    /// Head here, whatever the fence; for streams without leases.
    ExpectedSeq(Seq),
    /// At whatever head: the inbox of a run (told, cancel), audit. Refused on a closed stream.
    AtHead,
}

/// An append to one stream.
#[derive(Debug, Clone)]
pub struct LogAppend {
    /// The stream.
    pub stream: StreamId,
    /// The condition.
    pub condition: AppendCondition,
    /// The events, at least one.
    pub events: Vec<NewEvent>,
    /// Blobs to store in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Blobs that must be there already.
    pub required_blobs: Vec<BlobHash>,
    /// When it is recorded.
    pub now: Timestamp,
}

/// The outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendOutcome {
    /// Head after it.
    pub head: Head,
    /// Position of its last event.
    pub position: Position,
    /// The same append had been made before; nothing was written now.
    pub was_repeated: bool,
}

/// The function that a scan calls with each event.
pub type EventVisitor = Box<dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + Send>;

/// Appends events to streams and reads them.
///
/// Errors: an append or import is refused with the reason ([`AppendError`], [`ImportError`]), and a refusal writes
/// nothing; reads fail only with [`StoreError`].
///
/// Invariants: the seqs of a stream run 1, 2, 3 … without a gap, and each event's hash covers the one before it. Only the
/// holder of the epoch in force appends as a holder. Events are never changed; only the archive removes them.
pub trait EventLog {
    /// Appends to one stream. Appends of many streams that wait together share a transaction.
    /// The same append sent again is answered like the first, also under an epoch that has passed.
    fn append(&self, append: LogAppend) -> StoreFuture<'_, Result<AppendOutcome, AppendError>>;

    /// Events of a stream after `after`, at most `limit`.
    fn read_events(
        &self,
        stream: StreamId,
        after: Seq,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// Hands every event of a stream after `after` to `each`, in order, until that breaks off. `each` may block.
    fn scan_events(
        &self,
        stream: StreamId,
        after: Seq,
        each: EventVisitor,
    ) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Head of a stream; `None` if it does not exist.
    fn stream_head(&self, stream: StreamId) -> StoreFuture<'_, Result<Option<Head>, StoreError>>;

    /// The log of all streams by position, complete up to the last event answered: an event that commits late is not
    /// skipped.
    fn read_log(&self, after: Position, limit: u32) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// The committed events after `after` by position, also those that [`EventLog::feed`] holds back while an older
    /// transaction is open in any database of the server. An event with a lower position may be committed later.
    fn read_committed_events(
        &self,
        after: Position,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// All stream ids after `after` in name order, at most `limit`.
    fn list_streams(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(StreamId, Head)>, StoreError>>;

    /// Writes streams of another installation as they are, all or none; those that exist already are compared and left
    /// alone.
    fn import_run(
        &self,
        import: RunImport,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<ImportOutcome, ImportError>>;
}
