//! The store: the log, its blobs, and the projections written with it in one transaction.
//!
//! The only place with SQL. Two backends behind [`Store`], held to one conformance suite. What a command means is decided
//! in [`crate::decide`]; the store loads, calls the decision, appends what it says, projects, commits, or does none of it.

mod archived;
mod archived_tasks;
mod ask;
mod batches;
mod budgets;
mod carry;
mod conn;
mod desk;
mod error;
mod facts;
mod fault;
mod flow_rows;
mod gc;
mod inbox;
mod lane;
mod lineage;
mod listing;
mod lone;
mod lookout;
mod meters;
mod migrate;
mod outside;
mod overview;
mod permits;
mod plan;
pub mod postgres;
mod progress;
mod read;
mod read_blobs;
mod read_flow;
mod rebuild;
mod reports;
mod row;
mod sql_store;
pub mod sqlite;
mod staged;
mod task_rows;
mod verify;
mod write;

pub use archived::{
    AfterEnded, ArchiveError, ArchiveRefusal, Archives, Ended, Into, LEASE_MS_MAX, Queues, Restore,
    RestoreError, RestoreStream, Stub, Taken, Term, Trust,
};
pub use budgets::Reserved;
pub use carry::{BlobTotals, Import, ImportError, ImportStream, Imported};
pub use error::{AppendError, CommandError, StoreError, TakenId};
pub use inbox::{InboxAct, InboxFound, InboxMove, InboxMoved};
pub use meters::{Rebuilding, StoreMeters};
pub use outside::BlobsOutside;
pub use overview::{OverviewRows, Overviews};
pub use permits::Permitted;
pub use progress::{WriterHealth, WriterStall};
pub use read_flow::ASKED_OFTEN;
pub use reports::{Reported, Reports};
pub use sql_store::SqlStore;
pub use verify::{Fold, LogFault, LogReader, Verified, Walked, verify, verify_stream, walk, walk_listed};
pub(crate) use write::TOUCH_MS;

use std::{future::Future, ops::ControlFlow, pin::Pin, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::{Envelope, EventRef, Head, NewEvent},
    ids::{BatchId, BlobHash, Epoch, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp},
    run::RunEvent,
    system::{CallCost, PermitCost, Spending},
    task::{ForkedFrom, TaskRecord, TaskSpec},
    wire::{
        BatchBudget, BatchList, BatchView, BlobCheck, Held, InboxRow, LeaseRequest, LostLease, QueueView,
        Resolved, Room, RunView, StateCount, TaskPage, TaskQuery, WorkerView,
    },
};

use crate::decide::{Plan, Rejection};

/// A future a store gives back: boxed, so that the rest of the coordinator holds one `dyn Store`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Under which condition an append succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// By a lease's holder: head here, and the stream's fence open for exactly this epoch.
    Holder(Seq, Epoch),
    /// Head here, whatever the fence; for streams without leases.
    Expected(Seq),
    /// At whatever head: the inbox of a run (told, cancel), audit. Refused on a closed stream.
    AtHead,
}

/// An append to one stream.
#[derive(Debug, Clone)]
pub struct Append {
    /// The stream.
    pub stream: StreamId,
    /// The condition.
    pub condition: Condition,
    /// The events, at least one.
    pub events: Vec<NewEvent>,
    /// Blobs to store in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Blobs that must be there already.
    pub names: Vec<BlobHash>,
    /// When it is recorded.
    pub now: Timestamp,
}

/// A blob on its way in. Hash and size were checked against the bytes.
#[derive(Debug, Clone)]
pub struct NewBlob {
    /// Its name.
    pub blob: BlobRef,
    /// Its bytes, uncompressed.
    pub bytes: Bytes,
}

/// What an append gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Head after it.
    pub head: Head,
    /// Position of its last event.
    pub position: Position,
    /// The same append had been made before; nothing was written now.
    pub repeated: bool,
}

/// A decision to be made inside the store's transaction, on the record as it stands there.
/// May be called again if the transaction has to be repeated, so it must be pure.
pub type Decide = Box<dyn Fn(&TaskRecord) -> Result<Plan, Rejection> + Send + Sync>;

/// Blobs that come with a command.
#[derive(Debug, Clone, Default)]
pub struct CommandBlobs {
    /// Stored in the same transaction.
    pub blobs: Vec<NewBlob>,
    /// Must be there already.
    pub names: Vec<BlobHash>,
}

/// A task as it is submitted.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its id, made by the caller: submitted again under the same id it is accepted once.
    pub id: TaskId,
    /// What is asked. Checked.
    pub spec: TaskSpec,
    /// For a fork: the run it begins with, written in the same transaction.
    pub fork: Option<Box<NewFork>>,
}

/// The first run of a task that goes on from another run's turn.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Where it begins.
    pub from: ForkedFrom,
    /// The run, made by the caller. Its stream must not exist.
    pub run: RunId,
    /// What its stream begins with: `Forked` first.
    pub events: Vec<NewEvent>,
    /// Blobs that these name: must be stored.
    pub names: Vec<BlobHash>,
}

/// A lease as the store grants it; the HTTP layer adds token and times.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The task after `TaskLeased`.
    pub record: TaskRecord,
    /// The run that begins or goes on.
    pub run: RunId,
    /// Head of its stream.
    pub head: Head,
    /// Its stream begins with `Forked`.
    pub forked: bool,
}

/// What a lease request gets.
#[derive(Debug, Clone, Default)]
pub struct Leased {
    /// What the worker now holds.
    pub leases: Vec<Granted>,
    /// Somebody wants the worker to take no more and to end.
    pub drain: bool,
}

/// A worker that lives, and what it holds.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The worker.
    pub incarnation: IncarnationId,
    /// What it holds.
    pub held: Vec<Held>,
    /// How much room it has, if it says so.
    pub room: Option<Room>,
}

/// What became of heartbeats.
#[derive(Debug, Clone, Default)]
pub struct Renewed {
    /// Renewed.
    pub renewed: Vec<TaskId>,
    /// Lost.
    pub lost: Vec<LostLease>,
    /// As of [`Leased::drain`].
    pub drain: bool,
}

/// A difference between a projection and the log it is derived from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Table.
    pub table: &'static str,
    /// Row.
    pub key: String,
    /// Column.
    pub column: String,
    /// What stood there.
    pub stored: String,
    /// What the log says.
    pub derived: String,
}

/// A task and, while it is leased, the deadline of its lease.
pub type TaskAndDeadline = (TaskRecord, Option<Timestamp>);

/// What a scan calls with each event.
pub type EachEvent = Box<dyn FnMut(&EventRef<'_>) -> ControlFlow<()> + Send>;

/// Tasks whose time has come, and when the next one's will.
pub type Due = (Vec<TaskId>, Option<Timestamp>);

/// A run and the event its stream begins with, if it has begun.
pub type RunAndFirst = (RunView, Option<RunEvent>);

/// Who may append to a run as its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// The holder of this epoch.
    Open(Epoch),
    /// Nobody until the next lease; the last was of this epoch.
    Shut(Epoch),
    /// Nobody, ever.
    Closed,
}

/// Tasks by state, and workers.
pub type Standing = (Vec<StateCount>, Vec<WorkerView>);

/// The store. Every method is durable when it answers, or has done nothing.
pub trait Store: Archives + Overviews + Reports + WriterHealth + Send + Sync + 'static {
    /// `sqlite` or `postgres`.
    fn backend(&self) -> &'static str;

    /// Appends to one stream. Appends of many streams that wait together share a transaction.
    /// The same append sent again is answered as the first, also under an epoch that has passed.
    fn append(&self, append: Append) -> Answer<'_, Result<Appended, AppendError>>;

    /// Loads the task, decides, and writes task events, run events and projections together.
    /// Answers the record after it, and the run's head where the plan wrote to a run.
    fn command(
        &self,
        task: TaskId,
        decide: Decide,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> Answer<'_, Result<(TaskRecord, Option<Appended>), CommandError>>;

    /// Puts tasks into the backlog, all or none. Answers each task's id and whether it is a
    /// duplicate by its key.
    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<(TaskId, bool)>, AppendError>>;

    /// Leases up to `request.max` available tasks: those that [`crate::decide::choose`] chooses. `runs`
    /// gives an id for each new run that may be needed, at least `request.max` of them. The same
    /// (incarnation, number) again gets the same answer while its leases stand.
    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> Answer<'_, Result<Leased, StoreError>>;

    /// Renews leases until `now + lease_ms`. No event.
    fn heartbeat(
        &self,
        beat: Heartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> Answer<'_, Result<Renewed, StoreError>>;

    /// Takes a model provider's next free moment for a call, if that is not after `until`.
    /// With a limit on calls under way this is one of them until [`Store::answered`], or its epoch's end.
    fn permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'_, Result<Permitted, StoreError>>;

    /// A run's call, if one was under way, has ended.
    fn answered(&self, run: RunId) -> Answer<'_, Result<(), StoreError>>;

    /// Asks the budget of a run's batch for a call, by the holder of this epoch. What the run recorded is counted first.
    fn reserve(&self, caller: (RunId, Epoch), call: CallCost) -> Answer<'_, Result<Reserved, StoreError>>;

    /// Counts what runs of a batch have used since they were counted last, some of them. `true` = there are more.
    fn count_batch(&self, batch: BatchId) -> Answer<'_, Result<bool, StoreError>>;

    /// What is set for a batch, and what was counted of its runs.
    fn budget(&self, batch: BatchId) -> Answer<'_, Result<(BatchBudget, Spending), StoreError>>;

    /// Whether any batch has a budget.
    fn has_budgets(&self) -> Answer<'_, Result<bool, StoreError>>;

    /// Wants a worker to take no more tasks: it is told at its next request. `false` = there is no such worker.
    fn drain_worker(&self, incarnation: IncarnationId) -> Answer<'_, Result<bool, StoreError>>;

    /// Running tasks whose deadline is before `now`, at most `limit`.
    fn expired(&self, now: Timestamp, limit: u32) -> Answer<'_, Result<Vec<(TaskId, Epoch)>, StoreError>>;

    /// Tasks in `scheduled` or `retryable` whose time has come, or whose batch may use more again, at most `limit`; and
    /// when the next one's will.
    fn due(&self, now: Timestamp, limit: u32) -> Answer<'_, Result<Due, StoreError>>;

    /// The way to tell other coordinators of the store that there is news; `None` where there are no others.
    fn hints(&self) -> Option<Arc<postgres::Hints>>;

    /// The time of the server that all coordinators of the store share; `None` where there is none.
    fn time(&self) -> Answer<'_, Result<Option<Timestamp>, StoreError>>;

    /// A task.
    fn task(&self, id: TaskId) -> Answer<'_, Result<Option<TaskAndDeadline>, StoreError>>;

    /// A page of tasks, newest first. How much is
    /// looked at is bounded: where filters admit few of many, a page may be short, or empty, and have a next.
    fn tasks(&self, query: TaskQuery) -> Answer<'_, Result<TaskPage, StoreError>>;

    /// How the database goes about that, in its own words: for tests, and for whoever wonders.
    fn explain_tasks(&self, query: TaskQuery) -> Answer<'_, Result<Vec<String>, StoreError>>;

    /// How a batch stands; `None` where it has no task.
    fn batch(&self, id: BatchId) -> Answer<'_, Result<Option<BatchView>, StoreError>>;

    /// The batches of the newest tasks.
    fn batches(&self) -> Answer<'_, Result<BatchList, StoreError>>;

    /// The runs of a task, oldest first.
    fn runs_of(&self, task: TaskId) -> Answer<'_, Result<Vec<RunView>, StoreError>>;

    /// A run.
    fn run(&self, id: RunId) -> Answer<'_, Result<Option<RunView>, StoreError>>;

    /// Who holds a run; `None` where there is no such run.
    fn holding(&self, id: RunId) -> Answer<'_, Result<Option<Holding>, StoreError>>;

    /// Every run of the tree of shared history that `run` belongs to, in order of their ids, each
    /// with the event its stream begins with; at most `limit`. Empty where there is no such run.
    fn lineage(&self, run: RunId, limit: u32) -> Answer<'_, Result<Vec<RunAndFirst>, StoreError>>;

    /// Ids that begin with these hexadecimal digits (hyphens ignored); where none does, ids that
    /// end with them. At most 20 of each kind.
    fn resolve(&self, digits: String) -> Answer<'_, Result<Resolved, StoreError>>;

    /// Events of a stream after `after`, at most `limit`.
    fn read(&self, stream: StreamId, after: Seq, limit: u32)
    -> Answer<'_, Result<Vec<Envelope>, StoreError>>;

    /// Hands every event of a stream after `after` to `each`, in order, until that breaks off. `each` may block.
    fn scan(&self, stream: StreamId, after: Seq, each: EachEvent) -> Answer<'_, Result<(), StoreError>>;

    /// Head of a stream; `None` where there is none.
    fn head(&self, stream: StreamId) -> Answer<'_, Result<Option<Head>, StoreError>>;

    /// The whole log by position, complete up to what it answers: no event that commits late is skipped.
    fn feed(&self, after: Position, limit: u32) -> Answer<'_, Result<Vec<Envelope>, StoreError>>;

    /// The committed events after `after` by position, also those that [`Store::feed`] holds back while an older transaction
    /// is open in any database of the server. An event with a lower position may be committed later.
    fn committed_events(&self, after: Position, limit: u32) -> Answer<'_, Result<Vec<Envelope>, StoreError>>;

    /// All stream ids after `after` in name order, at most `limit`.
    fn streams(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<(StreamId, Head)>, StoreError>>;

    /// Stores blobs; those that are there are only touched.
    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Answer<'_, Result<(), StoreError>>;

    /// A blob's bytes, uncompressed and checked against its hash.
    fn blob(&self, hash: BlobHash) -> Answer<'_, Result<Option<Bytes>, StoreError>>;

    /// Reads stored blobs in the order of their hashes, from the one after `after`, and hashes them
    /// again: as many as make a part of bounded size.
    fn check_blobs(&self, after: Option<BlobHash>) -> Answer<'_, Result<BlobCheck, StoreError>>;

    /// Which of these are stored.
    fn blobs_present(&self, hashes: Vec<BlobHash>) -> Answer<'_, Result<Vec<BlobHash>, StoreError>>;

    /// Writes streams that come from another installation as they are, all or none; those that are here
    /// already are compared and left alone.
    fn import(&self, import: Import, now: Timestamp) -> Answer<'_, Result<Imported, ImportError>>;

    /// Which of these are stored; those are kept from garbage collection as if they had just been stored.
    fn keep_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<BlobHash>, StoreError>>;

    /// How much is stored.
    fn blob_totals(&self) -> Answer<'_, Result<BlobTotals, StoreError>>;

    /// Blobs not touched since `since`, after `after` in order of their hashes, at most `limit`.
    fn untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Drops those of `hashes` that were not touched since `since` and that no transaction is about to
    /// name; answers them. `since` must be before the log was read for who names what, by more than an
    /// hour: [`crate::gc`] is the caller.
    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> Answer<'_, Result<Vec<BlobRef>, StoreError>>;

    /// Files of blobs that are kept outside of the database which no row names and that were written before `since`:
    /// how many, and their bytes; and deletes them if `delete` says so. `since` as of [`Store::drop_blobs`].
    fn stray_blobs(&self, since: Timestamp, delete: bool) -> Answer<'_, Result<(u64, u64), StoreError>>;

    /// Rows of the inbox that wait to become tasks, oldest first, at most `limit`.
    fn inbox_waiting(&self, limit: u32) -> Answer<'_, Result<Vec<InboxRow>, StoreError>>;

    /// All rows of the inbox, oldest first, at most `limit`.
    fn inbox(&self, limit: u32) -> Answer<'_, Result<Vec<InboxRow>, StoreError>>;

    /// How many rows of the inbox wait, and how many were refused.
    fn inbox_counts(&self) -> Answer<'_, Result<(u64, u64), StoreError>>;

    /// Makes tasks of rows of the inbox: each row's removal and its task's first event are one transaction, and a
    /// row that is refused stays with the reason and keeps back no other. One answer each.
    fn take_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<InboxMoved>, StoreError>>;

    /// Does this to a row of the inbox. `false` = there is no such row.
    fn act_inbox(&self, row: String, act: InboxAct) -> Answer<'_, Result<bool, StoreError>>;

    /// Every queue with settings or with tasks that have not ended.
    fn queues(&self) -> Answer<'_, Result<Vec<QueueView>, StoreError>>;

    /// What waits for a worker, and what keeps it back.
    fn waiting(&self) -> Answer<'_, Result<crate::decide::Waiting, StoreError>>;

    /// How many tasks of its flow go before a task that may be leased; counted up to a thousand.
    fn ahead(&self, record: TaskRecord) -> Answer<'_, Result<u64, StoreError>>;

    /// Tasks that run and have this concurrency key, at most a hundred.
    fn sharing(&self, key: String) -> Answer<'_, Result<Vec<(TaskId, u32)>, StoreError>>;

    /// Tasks by state, and workers heard of since `since`.
    fn status(&self, since: Timestamp) -> Answer<'_, Result<Standing, StoreError>>;

    /// Workers heard of since `since`.
    fn workers(&self, since: Timestamp) -> Answer<'_, Result<Vec<WorkerView>, StoreError>>;

    /// What this store did since it was opened here.
    fn meters(&self) -> StoreMeters;

    /// The secret that run tokens are made with: made once, the same for every coordinator.
    fn secret(&self, fresh: [u8; 32]) -> Answer<'_, Result<[u8; 32], StoreError>>;

    /// Derives every projection from the log, compares, and writes what the log says.
    /// Lease deadlines are not compared: heartbeats are no events.
    fn rebuild(&self, seen: Arc<Rebuilding>) -> Answer<'_, Result<Vec<Difference>, StoreError>>;

    /// Ends background work; what was acknowledged is durable.
    fn close(&self) -> Answer<'_, ()>;
}
