//! What the store offers and what it answers: traits, values and errors. No SQL, and nothing of either database.
//!
//! A caller that holds a [`Store`] has all of it. One that needs a part can ask for that part: the log ([`EventLog`]),
//! the queue's writes ([`TaskQueue`]), blobs ([`BlobStore`]), the queue's reads ([`QueueReads`]), or [`Admin`].
//!
//! Invariant of every method: it is durable when it answers, or it has done nothing.

mod admin;
mod archives;
mod blob_store;
mod errors;
mod event_log;
mod hints;
mod import;
mod overview;
mod queue_reads;
mod reports;
mod store;
mod task_queue;
mod terms;

pub use admin::{Admin, Difference, Rebuilding, StoreMeters, WriterHealth, WriterStall};
pub use archives::{
    AfterEnded, ArchiveError, ArchiveRefusal, Archives, Ended, Into, Queues, Restore, RestoreError,
    RestoreStream, Stub,
};
pub use blob_store::{BlobStore, BlobTotals, BlobsOutside, NewBlob};
pub use errors::{AppendError, CommandError, StoreError, StoreFuture, TakenId};
pub(crate) use errors::{DATABASE_ANSWER_PREFIX, corrupt};
pub use event_log::{Append, Appended, Condition, EachEvent, EventLog};
pub use hints::{CoordinatorHints, Heard, Hint, HintListener};
pub use import::{Import, ImportError, ImportStream, Imported};
pub use overview::{OverviewRows, Overviews};
pub use queue_reads::{Holding, QueueReads, RunAndFirst, Standing, TaskAndDeadline};
pub use reports::{Reported, Reports};
pub use store::Store;
pub use task_queue::{
    CommandBlobs, Decide, Due, Granted, Heartbeat, InboxAct, InboxFound, InboxMove, InboxMoved, Leased,
    NewFork, NewTask, Permitted, Renewed, Reserved, TaskQueue,
};
pub use terms::{LEASE_MS_MAX, Taken, Term, Trust};
