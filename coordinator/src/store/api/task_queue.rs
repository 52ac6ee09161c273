//! Queue writes: submits, leases, commands on tasks, permits for model calls, the inbox.

use docket_schema::{
    api::{HeldLease, InboxRow, LeaseRequest, LostLease, WorkerCapacity},
    event::{Head, NewEvent},
    ids::{BatchId, BlobHash, Epoch, IncarnationId, RunId, TaskId, Timestamp},
    system::{Budget, MaxCallCost, PermitCost},
    task::{ForkedFrom, TaskRecord, TaskSpec},
};

use super::{AppendError, AppendOutcome, CommandError, NewBlob, StoreError, StoreFuture};
use crate::decide::{CommandPlan, CommandRejection};

/// A decision made inside the store's transaction, on the current record. May be called again if the
/// transaction is repeated, so it must be pure.
pub type DecideFn = Box<dyn Fn(&TaskRecord) -> Result<CommandPlan, CommandRejection> + Send + Sync>;

/// Blobs that come with a command.
#[derive(Debug, Clone, Default)]
pub struct CommandBlobs {
    /// Blobs to store in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Blobs that must already be stored.
    pub required_blobs: Vec<BlobHash>,
}

/// A task to be submitted.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Id chosen by the caller: a repeated submit under the same id is accepted once.
    pub id: TaskId,
    /// Its validated specification.
    pub spec: TaskSpec,
    /// For a fork: its first run, written in the same transaction.
    pub fork: Option<Box<NewFork>>,
}

/// The first run of a task that continues from a turn of another run.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Where the history is shared up to.
    pub from: ForkedFrom,
    /// The run, with an id chosen by the caller. Its stream must not exist.
    pub run: RunId,
    /// First events of its stream: `Forked` first.
    pub events: Vec<NewEvent>,
    /// Blobs that these reference; they must already be stored.
    pub required_blobs: Vec<BlobHash>,
}

/// A granted lease; the HTTP layer adds token and times.
#[derive(Debug, Clone)]
pub struct GrantedLease {
    /// The task after `TaskLeased`.
    pub record: TaskRecord,
    /// The run to start or continue.
    pub run: RunId,
    /// Head of its stream.
    pub head: Head,
    /// Whether its stream starts with `Forked`.
    pub forked: bool,
}

/// Outcome of a lease request.
#[derive(Debug, Clone, Default)]
pub struct LeaseOutcome {
    /// The worker's leases.
    pub leases: Vec<GrantedLease>,
    /// Whether the worker must take no more tasks and exit.
    pub drain: bool,
}

/// A worker's heartbeat with its leases.
#[derive(Debug, Clone)]
pub struct WorkerHeartbeat {
    /// The worker.
    pub incarnation: IncarnationId,
    /// Leases that it believes it holds.
    pub leases: Vec<HeldLease>,
    /// Its capacity, if reported.
    pub capacity: Option<WorkerCapacity>,
}

/// The outcome of a heartbeat.
#[derive(Debug, Clone, Default)]
pub struct HeartbeatOutcome {
    pub renewed: Vec<TaskId>,
    pub lost: Vec<LostLease>,
    /// As in [`LeaseOutcome::drain`].
    pub drain: bool,
}

/// Tasks that are due, and when the next one will be.
pub type DueTasks = (Vec<TaskId>, Option<Timestamp>);

/// When a model provider may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitOutcome {
    /// At this time, by this caller.
    GrantedAt(Timestamp),
    /// Not before this time; no permit was taken.
    NotBefore(Timestamp),
    /// Once a call in progress has ended; no permit was taken.
    AtConcurrencyLimit,
}

/// Whether a batch's budget covers a call of one of its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetReservation {
    /// Covered, or there is no budget. The call's maximum use is reserved until it ends.
    Granted,
    /// Possibly, once a call in progress has ended.
    CallInProgress,
    /// Unknown: the budget limits cost and the call's model has no price. Nothing is counted.
    Unpriced,
    /// Not covered.
    Exceeded {
        batch: BatchId,
        /// Its budget.
        budget: Budget,
        /// Amounts used and requested.
        message: String,
        /// Whether the log already records it.
        is_recorded: bool,
    },
}

/// A row to be removed from the inbox.
#[derive(Debug, Clone)]
pub struct InboxMove {
    /// Its id in the inbox.
    pub row: String,
    /// Who submits its task.
    pub by: String,
    pub content: InboxContent,
}

/// Content of an inbox row.
#[derive(Debug, Clone)]
pub enum InboxContent {
    /// A valid task.
    Task(Box<NewTask>),
    /// Invalid, with the reason.
    Invalid(String),
}

/// Outcome for an inbox row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxOutcome {
    /// The row is now a task, or already was one.
    Submitted(TaskId),
    /// The row is removed: this task holds its deduplication key.
    Duplicate(TaskId),
    /// The row stays, with the reason.
    Refused(String),
    /// Another coordinator took it, or it was dropped.
    Gone,
}

/// A person's action on an inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxAction {
    /// Remove it without creating a task.
    Drop,
    /// Process it again.
    Retry,
}

/// Writes the queue: tasks, leases, permits and the inbox.
///
/// Errors: a refused submit or command states its reason ([`AppendError`], [`CommandError`]) and writes
/// nothing; other methods fail only with [`StoreError`].
///
/// Invariants: everything a method writes (task events, run events, projections) is one transaction. A task
/// has one current epoch at a time, and epochs only increase. A submit is accepted once per task id, and once
/// per deduplication key until that task ends. Every method can be repeated after a lost reply.
pub trait TaskQueue {
    /// Loads the task, decides, and writes task events, run events and projections together. Returns the
    /// resulting record, and the run's head if the plan wrote to a run.
    fn execute_command(
        &self,
        task: TaskId,
        decide: DecideFn,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(TaskRecord, Option<AppendOutcome>), CommandError>>;

    /// Adds tasks to the backlog, all or none. Returns each task's id and whether it is a duplicate by its
    /// key.
    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, bool)>, AppendError>>;

    /// Leases up to `request.max` available tasks, selected by [`crate::decide::waiting::choose`]. `runs`
    /// provides ids for new runs, at least `request.max` of them. A repeated (incarnation, number) gets the
    /// same reply while its leases are valid.
    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<LeaseOutcome, StoreError>>;

    /// Renews leases until `now + lease_ms`. Writes no event.
    fn renew_leases(
        &self,
        beat: WorkerHeartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<HeartbeatOutcome, StoreError>>;

    /// Lists running tasks whose deadline is before `now`, at most `limit`.
    fn list_expired_leases(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, Epoch)>, StoreError>>;

    /// Lists tasks in `scheduled` or `retryable` that are due, and tasks whose batch budget was raised, at
    /// most `limit`; also returns when the next one is due.
    fn list_due_tasks(&self, now: Timestamp, limit: u32) -> StoreFuture<'_, Result<DueTasks, StoreError>>;

    /// Asks a worker to take no more tasks; it learns this from its next request. Returns `false` if the
    /// worker does not exist.
    fn drain_worker(&self, incarnation: IncarnationId) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// Takes a model provider's next free slot for a call, unless it is after `until`. With a concurrency
    /// limit the call counts as in progress until [`TaskQueue::release_permit`] or the end of its epoch.
    fn request_permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> StoreFuture<'_, Result<PermitOutcome, StoreError>>;

    /// Ends a run's call in progress, if it has one.
    fn release_permit(&self, run: RunId) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Requests budget for a call from a run's batch, by the holder of this epoch. Events already recorded by
    /// the run are counted first.
    fn reserve_budget(
        &self,
        caller: (RunId, Epoch),
        call: MaxCallCost,
    ) -> StoreFuture<'_, Result<BudgetReservation, StoreError>>;

    /// Counts usage of some of a batch's runs since the last count. Returns `true` if there is more to count.
    fn count_batch_usage(&self, batch: BatchId) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// Lists waiting rows of the inbox, oldest first, at most `limit`.
    fn list_waiting_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>>;

    /// Turns inbox rows into tasks. Each row's removal and its task's first event are one transaction; a
    /// rejected row stays with the reason and delays no other. Returns one outcome per row.
    fn consume_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<InboxOutcome>, StoreError>>;

    /// Drops or retries a row of the inbox. Returns `false` if it does not exist.
    fn apply_inbox_action(&self, row: String, act: InboxAction) -> StoreFuture<'_, Result<bool, StoreError>>;
}
