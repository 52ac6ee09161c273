//! The store: the log, its blobs, and the projections written with it in one transaction.
//!
//! The only place with SQL. Two backends behind [`Store`], held to one conformance suite. What a command means is decided
//! in [`crate::decide`]; the store loads, calls the decision, appends what it says, projects, commits, or does none of it.
//!
//! Folders, each of which may know those above it: `api/` (what callers see), `db/` (the layer between our SQL and the two
//! databases), `queries/`, `blobs/` and `archive/` (reads), `writer/` (how writes reach the database), `verify/`, `plan/`
//! (what each command means), [`SqlStore`], and `sqlite/` and `postgres/`, which open one.

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
    Admin, AfterEnded, Append, AppendError, Appended, ArchiveError, ArchiveRefusal, Archives, BlobStore,
    BlobTotals, BlobsOutside, CommandBlobs, CommandError, Condition, CoordinatorHints, Decide, Difference,
    Due, EachEvent, Ended, EventLog, Granted, Heard, Heartbeat, Hint, HintListener, Holding, Import,
    ImportError, ImportStream, Imported, InboxAct, InboxFound, InboxMove, InboxMoved, Into, LEASE_MS_MAX,
    Leased, NewBlob, NewFork, NewTask, OverviewRows, Overviews, Permitted, QueueReads, Queues, Rebuilding,
    Renewed, Reported, Reports, Reserved, Restore, RestoreError, RestoreStream, RunAndFirst, Standing, Store,
    StoreError, StoreFuture, StoreMeters, Stub, Taken, TakenId, TaskAndDeadline, TaskQueue, Term, Trust,
    WriterHealth, WriterStall,
};
pub(crate) use blobs::TOUCH_MS;
pub use queries::queues::ASKED_OFTEN;
pub use sql_store::SqlStore;
pub use verify::{Fold, LogFault, LogReader, Verified, Walked, verify, verify_stream, walk, walk_listed};
