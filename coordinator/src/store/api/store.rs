//! All of a store, for callers that hold one `dyn Store`.

use super::{
    ArchiveStore, BlobStore, EventLog, OverviewReads, QueueReads, ReportReads, StoreAdmin, TaskQueue,
    WriterHealth,
};

/// The store: every part of it. Implemented by what implements the parts; a `dyn Store` can be passed where a part is
/// wanted.
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
