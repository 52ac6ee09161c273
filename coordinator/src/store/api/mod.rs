//! Interface of the store: traits, values and errors. Contains no SQL and nothing specific to either
//! database.
//!
//! A caller that holds a [`Store`] can use all of it. One that needs a part can require that part: the log
//! ([`EventLog`]), queue writes ([`TaskQueue`]), blobs ([`BlobStore`]), queue reads ([`QueueReads`]), or
//! [`StoreAdmin`].
//!
//! Invariant of every method: when it returns, its effect is durable or it has done nothing.

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

pub use admin::{ProjectionDifference, RebuildProgress, StoreAdmin, StoreMetrics, WriterHealth, WriterStall};
pub use archives::{
    ArchiveError, ArchiveRefusal, ArchiveStore, ArchiveStub, EndedTask, EndedTaskCursor, QueueSelection,
    RestoreDestination, RestoreError, RestoreRequest, RestoreStream,
};
pub use blob_store::{BlobStore, BlobTotals, ExternalBlobSettings, NewBlob};
pub use errors::{AppendError, CommandError, StoreError, StoreFuture, TaskIdConflict};
pub(crate) use errors::{DATABASE_ANSWER_PREFIX, corrupt_error};
pub use event_log::{AppendCondition, AppendOutcome, EventLog, EventVisitor, LogAppend};
pub use hints::{CoordinatorHints, HintListener, HintMessage, WakeupHint};
pub use import::{ImportError, ImportOutcome, ImportStream, RunImport};
pub use overview::{OverviewReads, OverviewRows};
pub use queue_reads::{QueueReads, RunLeaseState, RunWithFirstEvent, StatusRows, TaskWithDeadline};
pub use reports::{ReportReads, ReportScope};
pub use store::Store;
pub use task_queue::{
    BudgetReservation, CommandBlobs, DecideFn, DueTasks, GrantedLease, HeartbeatOutcome, InboxAction,
    InboxContent, InboxMove, InboxOutcome, LeaseOutcome, NewFork, NewTask, PermitOutcome, TaskQueue,
    WorkerHeartbeat,
};
pub use terms::{DeadlineTrust, LEASE_MS_MAX, TermOutcome, TermRequest};
