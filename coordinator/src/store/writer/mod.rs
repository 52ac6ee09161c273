//! Write path: commands in a bounded queue, a working set for each batch, and the rows that a batch writes.
//! The meaning of a command is decided in `plan/`.
//!
//! An append from call to reply: `SqlStore::append` builds a request and waits for its reply; the request
//! passes through the queue ([`write_queue`]) to its database's writer (`sqlite/writer.rs`,
//! `postgres/writer.rs`), which has the batch decided (`plan::plan_batch`), writes the rows and commits; then
//! the queue sends the reply.

mod batch_writes;
mod event_effects;
mod lease_cursor;
mod lease_reads;
mod metrics;
mod progress;
mod queue_rows;
mod row_write;
mod row_writer;
mod task_rows;
pub(crate) mod task_runs;
mod working_set;
mod write_command;
pub(crate) mod write_queue;

pub(crate) use batch_writes::{DeadlineChange, DependencyChange, EventRow, RemovedStream, WorkerUpdate};
pub(crate) use event_effects::{
    decode_budget_change, decode_fork, decode_queue_settings, event_spending, into_new_event, run_change,
};
pub(crate) use lease_cursor::{AvailabilityHints, FLOW_START, FlowPosition, LeaseCursor};
pub(crate) use lease_reads::{CachedHeads, RunningTask, StoredWorker};
pub(crate) use metrics::WriterMetrics;
pub(crate) use progress::{LOCK_HELD, READ_ONLY, UNREACHABLE, WriterProgress};
pub(crate) use row_write::{ColumnKind, ROWS_PLACEHOLDER, RowWrite};
pub(crate) use row_writer::{POSITION_BITS, named_blobs_check, row_writes, stream_writes, take_event_writes};
pub(crate) use task_rows::{TASK_ROW_COLUMNS, task_args};
pub(crate) use task_runs::{TaskRun, TaskRuns};
pub(crate) use working_set::{StagedRequest, WorkingSet};
pub(crate) use write_command::{
    AppendCommand, BatchCommand, ChangeInboxRow, CountBatchUsage, DrainWorker, DropBlobs, EndCall,
    ExclusiveCommand, ImportStreams, LeaseTasks, PendingCommand, PutBlobs, ReadSecret, RebuildProjections,
    RemoveStreams, RenewLeases, ReserveBudget, RestoreStreams, SubmitTasks, TakeInbox, TakePermit,
    TaskCommand, TouchBlobs, WriteCommand, WriteRequest, describe_batch, latest_now,
};
pub(crate) use write_queue::BatchCommitter;
