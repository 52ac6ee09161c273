//! The queue's writes: submits, leases, commands on tasks, permits for model calls, the inbox.

use docket_schema::{
    api::{HeldLease, InboxRow, LeaseRequest, LostLease, WorkerCapacity},
    event::{Head, NewEvent},
    ids::{BatchId, BlobHash, Epoch, IncarnationId, RunId, TaskId, Timestamp},
    system::{Budget, MaxCallCost, PermitCost},
    task::{ForkedFrom, TaskRecord, TaskSpec},
};

use super::{AppendError, AppendOutcome, CommandError, NewBlob, StoreError, StoreFuture};
use crate::decide::{CommandPlan, CommandRejection};

/// A decision to be made inside the store's transaction, on the record as it is there.
/// May be called again if the transaction has to be repeated, so it must be pure.
pub type DecideFn = Box<dyn Fn(&TaskRecord) -> Result<CommandPlan, CommandRejection> + Send + Sync>;

/// Blobs that come with a command.
#[derive(Debug, Clone, Default)]
pub struct CommandBlobs {
    /// Stored in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Must be there already.
    pub required_blobs: Vec<BlobHash>,
}

/// A task as it is submitted.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id, made by the caller: submitted again under the same id it is accepted once.
    pub id: TaskId,
    /// Its specification. Checked.
    pub spec: TaskSpec,
    /// For a fork: the run it begins with, written in the same transaction.
    pub fork: Option<Box<NewFork>>,
}

/// The first run of a task that continues from another run's turn.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Where it begins.
    pub from: ForkedFrom,
    /// The run, made by the caller. Its stream must not exist.
    pub run: RunId,
    /// The first events of its stream: `Forked` first.
    pub events: Vec<NewEvent>,
    /// Blobs that these name: must be stored.
    pub required_blobs: Vec<BlobHash>,
}

/// A lease as the store grants it; the HTTP layer adds token and times.
#[derive(Debug, Clone)]
pub struct GrantedLease {
    /// The task after `TaskLeased`.
    pub record: TaskRecord,
    /// The run that begins or continues.
    pub run: RunId,
    /// Head of its stream.
    pub head: Head,
    /// Its stream begins with `Forked`.
    pub forked: bool,
}

/// The answer to a lease request.
#[derive(Debug, Clone, Default)]
pub struct LeaseOutcome {
    /// The leases that the worker now has.
    pub leases: Vec<GrantedLease>,
    /// A person wants the worker to take no more and to end.
    pub drain: bool,
}

/// A heartbeat of a worker: its leases.
#[derive(Debug, Clone)]
pub struct WorkerHeartbeat {
    /// The worker.
    pub incarnation: IncarnationId,
    /// The leases it believes to have.
    pub leases: Vec<HeldLease>,
    /// How much room it has, if it says so.
    pub capacity: Option<WorkerCapacity>,
}

/// The outcome of a heartbeat.
#[derive(Debug, Clone, Default)]
pub struct HeartbeatOutcome {
    /// Renewed.
    pub renewed: Vec<TaskId>,
    /// Lost.
    pub lost: Vec<LostLease>,
    /// As in [`Leased::drain`].
    pub drain: bool,
}

/// Tasks whose time has come, and when the next one's will.
pub type DueTasks = (Vec<TaskId>, Option<Timestamp>);

/// When a model provider may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitOutcome {
    /// At this moment, by the caller that took it.
    GrantedAt(Timestamp),
    /// Not before this; nothing was taken.
    NotBefore(Timestamp),
    /// Once one of the calls under way has ended; nothing was taken.
    AtConcurrencyLimit,
}

/// Whether a batch's budget pays for a call of one of its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetReservation {
    /// It does, or there is none. The most that the call may use is set aside until it has ended.
    Granted,
    /// It may, once one of the calls under way has ended.
    CallInProgress,
    /// Unknown: the budget is of money, and the call's model has no price. Nothing is counted.
    Unpriced,
    /// It does not.
    Exceeded {
        /// The batch.
        batch: BatchId,
        /// Its budget.
        budget: Budget,
        /// The amounts used and wanted.
        message: String,
        /// The log says so already.
        is_recorded: bool,
    },
}

/// A row on its way out of the inbox.
#[derive(Debug, Clone)]
pub struct InboxMove {
    /// Its id, as it stands there.
    pub row: String,
    /// Who submits its task.
    pub by: String,
    /// What was found in it.
    pub content: InboxContent,
}

/// The content of a row of the inbox.
#[derive(Debug, Clone)]
pub enum InboxContent {
    /// A task, checked.
    Task(Box<NewTask>),
    /// Not a task, and why.
    Invalid(String),
}

/// The outcome for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxOutcome {
    /// It is a task now, or was one already.
    Submitted(TaskId),
    /// It is gone: this task holds its deduplication key.
    Duplicate(TaskId),
    /// It stays, with the reason.
    Refused(String),
    /// Another coordinator has it, or it was dropped.
    Gone,
}

/// What a person does to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxAction {
    /// It is taken out, and no task is made of it.
    Drop,
    /// It is read once more.
    Retry,
}

/// Writes the queue: what happens to tasks, leases, permits and the inbox.
///
/// Errors: a submit or command that is refused says why ([`AppendError`], [`CommandError`]) and writes nothing; the other
/// methods fail only with [`StoreError`].
///
/// Invariants: what a method writes (task events, run events, projections) is one transaction. One epoch of a task at a
/// time is in force, and epochs only rise. A submit is accepted once by its task ids, and once by a deduplication key
/// until that task ends. Every method may be repeated after a lost answer.
pub trait TaskQueue {
    /// Loads the task, decides, and writes task events, run events and projections together.
    /// Answers the record after it, and the run's head where the plan wrote to a run.
    fn execute_command(
        &self,
        task: TaskId,
        decide: DecideFn,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(TaskRecord, Option<AppendOutcome>), CommandError>>;

    /// Puts tasks into the backlog, all or none. Answers each task's id and whether it is a duplicate by its key.
    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, bool)>, AppendError>>;

    /// Leases up to `request.max` available tasks: those that [`crate::decide::waiting::choose`] chooses. `runs`
    /// gives an id for each new run that may be needed, at least `request.max` of them. The same
    /// (incarnation, number) again gets the same answer while its leases are in force.
    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<LeaseOutcome, StoreError>>;

    /// Renews leases until `now + lease_ms`. No event.
    fn renew_leases(
        &self,
        beat: WorkerHeartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<HeartbeatOutcome, StoreError>>;

    /// Running tasks whose deadline is before `now`, at most `limit`.
    fn list_expired_leases(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, Epoch)>, StoreError>>;

    /// Tasks in `scheduled` or `retryable` whose time has come, or whose batch may use more again, at most `limit`; and
    /// when the next one's will.
    fn list_due_tasks(&self, now: Timestamp, limit: u32) -> StoreFuture<'_, Result<DueTasks, StoreError>>;

    /// Wants a worker to take no more tasks: it is told at its next request. `false` = there is no such worker.
    fn drain_worker(&self, incarnation: IncarnationId) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// Takes a model provider's next free moment for a call, if that is not after `until`. With a limit on calls under
    /// way this is one of them until [`TaskQueue::answered`], or its epoch's end.
    fn request_permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> StoreFuture<'_, Result<PermitOutcome, StoreError>>;

    /// A run's call, if one was under way, has ended.
    fn release_permit(&self, run: RunId) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Asks the budget of a run's batch for a call, by the holder of this epoch. The events that the run recorded are
    /// counted first.
    fn reserve_budget(
        &self,
        caller: (RunId, Epoch),
        call: MaxCallCost,
    ) -> StoreFuture<'_, Result<BudgetReservation, StoreError>>;

    /// Counts what some of a batch's runs have used since they were counted last. `true` = there are more.
    fn count_batch_usage(&self, batch: BatchId) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// Rows of the inbox that wait to become tasks, oldest first, at most `limit`.
    fn list_waiting_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>>;

    /// Makes tasks of rows of the inbox: each row's removal and its task's first event are one transaction, and a
    /// row that is refused stays with the reason and keeps back no other. One answer each.
    fn consume_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<InboxOutcome>, StoreError>>;

    /// Drops or retries a row of the inbox. `false` = there is no such row.
    fn apply_inbox_action(&self, row: String, act: InboxAction) -> StoreFuture<'_, Result<bool, StoreError>>;
}
