//! How writes reach the database: commands in a bounded queue, a working set for each batch, and the rows that a batch
//! writes. What a command means is decided in `plan/`.
//!
//! An append from its caller to its answer: `SqlStore::append` makes a request of it and waits for its reply; the request
//! passes through the queue ([`write_queue`]) to the writer of its database (`sqlite/writer.rs`, `postgres/writer.rs`),
//! which has the batch decided (`plan::plan_batch`), writes the rows and commits; then the queue sends the reply.

mod batch_writes;
mod event_effects;
mod lease_cursor;
mod lease_reads;
mod meters;
mod progress;
mod queue_rows;
mod row_write;
mod row_writer;
mod task_rows;
pub(crate) mod task_runs;
mod working_set;
mod write_command;
pub(crate) mod write_queue;

pub(crate) use batch_writes::{DeadlineChange, DependencyChange, EventRow, RemovedStream, WorkerSeen};
pub(crate) use event_effects::{
    budget_change, event_spending, forked, into_new_event, queue_settings, run_change,
};
pub(crate) use lease_cursor::{AvailabilityHints, BEGINNING, LeaseCursor, PlaceInFlow};
pub(crate) use lease_reads::{KnownWorker, RunningTask, SeenHeads};
pub(crate) use meters::Meters;
pub(crate) use progress::{LOCK_HELD, READ_ONLY, UNREACHABLE, WriterProgress};
pub(crate) use row_write::{ColumnKind, ROWS, RowWrite};
pub(crate) use row_writer::{POSITION_BITS, event_writes, named_blobs_check, row_writes, stream_writes};
pub(crate) use task_rows::{TASK_ROW, task_cells};
pub(crate) use task_runs::{TaskRun, TaskRuns};
pub(crate) use working_set::{StagedRequest, WorkingSet};
pub(crate) use write_command::{
    ActInbox, AppendCommand, BatchCommand, CountBatch, DrainWorker, DropBlobs, EndCall, ExclusiveCommand,
    ImportStreams, LeaseTasks, PutBlobs, ReadSecret, RebuildProjections, RemoveStreams, RenewLeases, Request,
    ReserveBudget, RestoreStreams, SubmitTasks, TakeInbox, TakePermit, TaskCommand, TouchBlobs, WriteCommand,
    WriteRequest, doing, latest_now,
};
pub(crate) use write_queue::Committer;
