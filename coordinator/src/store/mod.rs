//! The store: the log, its blobs, and the projections written with it in one transaction.
//!
//! The only place with SQL. Two backends implement [`Store`] and pass one conformance suite. The meaning of a
//! command is decided in [`crate::decide`]; the store loads the record, calls the decision, appends its
//! events, updates projections and commits, or does nothing.
//!
//! Folders, each of which may use those above it: `api/` (interface for callers), `db/` (layer between our
//! SQL and the two databases), `queries/`, `blobs/` and `archive/` (reads), `writer/` (how writes reach the
//! database), `verify/`, `plan/` (the meaning of each command), [`SqlStore`], and `sqlite/` and `postgres/`,
//! which open one.

mod api;
mod archive;
mod blobs;
mod db;
mod plan;
pub mod postgres;
mod queries;
mod sql_store;
pub mod sqlite;
mod verify;
mod writer;

pub use api::{
    AppendCondition, AppendError, AppendOutcome, ArchiveError, ArchiveRefusal, ArchiveStore, ArchiveStub,
    BlobStore, BlobTotals, BudgetReservation, CommandBlobs, CommandError, CoordinatorHints, DeadlineTrust,
    DecideFn, DueTasks, EndedTask, EndedTaskCursor, EventLog, EventVisitor, ExternalBlobSettings,
    GrantedLease, HeartbeatOutcome, HintListener, HintMessage, ImportError, ImportOutcome, ImportStream,
    InboxAction, InboxContent, InboxMove, InboxOutcome, LEASE_MS_MAX, LeaseOutcome, LogAppend, NewBlob,
    NewFork, NewTask, OverviewReads, OverviewRows, PermitOutcome, ProjectionDifference, QueueReads,
    QueueSelection, RebuildProgress, ReportReads, ReportScope, RestoreDestination, RestoreError,
    RestoreRequest, RestoreStream, RunImport, RunLeaseState, RunWithFirstEvent, StatusRows, Store,
    StoreAdmin, StoreError, StoreFuture, StoreMetrics, TaskIdConflict, TaskQueue, TaskWithDeadline,
    TermOutcome, TermRequest, WakeupHint, WorkerHeartbeat, WriterHealth, WriterStall,
};
pub(crate) use blobs::TOUCH_INTERVAL_MS;
pub use queries::queues::FREQUENT_QUERIES;
pub use sql_store::SqlStore;
pub use verify::{
    LogFault, LogReader, StreamFold, StreamReport, VerifyReport, verify_listed_stream, verify_log,
    verify_stream, walk_stream,
};
