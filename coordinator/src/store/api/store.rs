//! The complete store interface, for callers that hold one `dyn Store`.

use super::{
    ArchiveStore, BlobStore, EventLog, OverviewReads, QueueReads, ReportReads, StoreAdmin, TaskQueue,
    WriterHealth,
};

/// The complete store. Implemented for every type that implements the parts; a `dyn Store` can be passed
/// where a part is required.
pub trait Store:
    EventLog
    + TaskQueue
    + BlobStore
    + QueueReads
    + StoreAdmin
    + ArchiveStore
    + OverviewReads
    + ReportReads
    + WriterHealth
    + Send
    + Sync
    + 'static
{
}

impl<T> Store for T where
    T: EventLog
        + TaskQueue
        + BlobStore
        + QueueReads
        + StoreAdmin
        + ArchiveStore
        + OverviewReads
        + ReportReads
        + WriterHealth
        + Send
        + Sync
        + 'static
{
}
