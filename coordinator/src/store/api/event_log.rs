//! The log: streams of events, written at their heads and read in order.

use std::ops::ControlFlow;

use docket_schema::{
    event::{Envelope, EventRef, Head, NewEvent},
    ids::{BlobHash, Epoch, Position, Seq, StreamId, Timestamp},
};

use super::{AppendError, ImportError, ImportOutcome, NewBlob, RunImport, StoreError, StoreFuture};

/// Condition of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendCondition {
    /// By a lease holder: requires this head, and the stream's fence open for exactly this epoch.
    LeaseHolder(Seq, Epoch),
    /// Requires this head, regardless of the fence; for streams without leases.
    ExpectedSeq(Seq),
    /// At any head: a run's inbox events (user messages, cancel), audit. Refused on a closed stream.
    AtHead,
}

/// An append to one stream.
#[derive(Debug, Clone)]
pub struct LogAppend {
    pub stream: StreamId,
    pub condition: AppendCondition,
    /// Events, at least one.
    pub events: Vec<NewEvent>,
    /// Blobs to store in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Blobs that must already be stored.
    pub required_blobs: Vec<BlobHash>,
    /// Time of recording.
    pub now: Timestamp,
}

/// The outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendOutcome {
    /// Head after the append.
    pub head: Head,
    /// Position of its last event.
    pub position: Position,
    /// Whether the same append had been made before, so that nothing was written.
    pub was_repeated: bool,
}

/// Callback of a scan.
pub type EventVisitor = Box<dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + Send>;

/// Appends events to streams and reads them.
///
/// Errors: a refused append or import states its reason ([`AppendError`], [`ImportError`]) and writes
/// nothing; reads fail only with [`StoreError`].
///
/// Invariants: the seqs of a stream run 1, 2, 3 … without a gap, and each event's hash covers the previous
/// one. Only the holder of the current epoch appends as a holder. Events are never changed; only the archive
/// removes them.
pub trait EventLog {
    /// Appends to one stream. Waiting appends of many streams share a transaction. A repeated append gets the
    /// original reply, even under an epoch that has passed.
    fn append(&self, append: LogAppend) -> StoreFuture<'_, Result<AppendOutcome, AppendError>>;

    /// Reads events of a stream after `after`, at most `limit`.
    fn read_events(
        &self,
        stream: StreamId,
        after: Seq,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// Passes every event of a stream after `after` to `each`, in order, until it breaks. `each` may block.
    fn scan_events(
        &self,
        stream: StreamId,
        after: Seq,
        each: EventVisitor,
    ) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Returns the head of a stream; `None` if it does not exist.
    fn stream_head(&self, stream: StreamId) -> StoreFuture<'_, Result<Option<Head>, StoreError>>;

    /// Reads the log of all streams by position. The result is complete up to its last event: an event that
    /// commits late is not skipped.
    fn read_log(&self, after: Position, limit: u32) -> StoreFuture<'_, Result<Vec<Envelope>, StoreError>>;

    /// Reads committed events after `after` by position, including those that [`EventLog::read_log`]
    /// withholds while an older transaction is open in any database of the server. An event with a lower
    /// position may be committed later.
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

    /// Writes streams of another installation unchanged, all or none; existing ones are compared and left
    /// alone.
    fn import_run(
        &self,
        import: RunImport,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<ImportOutcome, ImportError>>;
}
