//! The queue's reads: tasks, runs, batches, queues, workers.

use docket_schema::{
    api::{
        BatchBudget, BatchList, BatchView, InboxRow, QueueView, ResolveResponse, RunView, StateCount,
        TaskPage, TaskQuery, WorkerView,
    },
    ids::{BatchId, Epoch, RunId, TaskId, Timestamp},
    run::RunEvent,
    system::BatchSpending,
    task::TaskRecord,
};

use super::{StoreError, StoreFuture};

/// A task and, while it is leased, the deadline of its lease.
pub type TaskWithDeadline = (TaskRecord, Option<Timestamp>);

/// A run and the first event of its stream, if it has begun.
pub type RunWithFirstEvent = (RunView, Option<RunEvent>);

/// Tasks by state, and workers.
pub type StatusRows = (Vec<StateCount>, Vec<WorkerView>);

/// Who may append to a run as its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLeaseState {
    /// The holder of this epoch.
    Leased(Epoch),
    /// Nobody until the next lease; the last was of this epoch.
    Unleased(Epoch),
    /// Nobody, ever.
    Closed,
}

/// Reads the queue's projections.
///
/// Errors: [`StoreError`] alone; what does not exist is `None` or empty.
///
/// Invariants: a read never waits for a writer. It sees what was committed when it began, and its costs are bounded by an
/// index or a limit, never by the length of the log.
pub trait QueueReads {
    /// A task.
    fn get_task(&self, id: TaskId) -> StoreFuture<'_, Result<Option<TaskWithDeadline>, StoreError>>;

    /// A page of tasks, newest first. The number of tasks that a page examines is bounded: where filters admit few of
    /// many, a page may be short, or empty, and have a next.
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Result<TaskPage, StoreError>>;

    /// The database's plan for that query, in its own words: for tests and for people.
    fn explain_task_query(&self, query: TaskQuery) -> StoreFuture<'_, Result<Vec<String>, StoreError>>;

    /// The state of a batch; `None` if it has no task.
    fn get_batch(&self, id: BatchId) -> StoreFuture<'_, Result<Option<BatchView>, StoreError>>;

    /// The batches of the newest tasks.
    fn list_batches(&self) -> StoreFuture<'_, Result<BatchList, StoreError>>;

    /// A batch's budget, and what was counted of its runs.
    fn batch_budget(
        &self,
        batch: BatchId,
    ) -> StoreFuture<'_, Result<(BatchBudget, BatchSpending), StoreError>>;

    /// Whether any batch has a budget.
    fn has_budgets(&self) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// The runs of a task, oldest first.
    fn list_task_runs(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<RunView>, StoreError>>;

    /// A run.
    fn get_run(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunView>, StoreError>>;

    /// Who holds a run; `None` if there is no such run.
    fn run_lease_state(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunLeaseState>, StoreError>>;

    /// Every run of the tree of shared history that `run` belongs to, in order of their ids, each
    /// with the first event of its stream; at most `limit`. Empty if there is no such run.
    fn read_lineage(
        &self,
        run: RunId,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<RunWithFirstEvent>, StoreError>>;

    /// Ids that begin with these hexadecimal digits (hyphens ignored); if none does, ids that
    /// end with them. At most 20 of each kind.
    fn resolve_id(&self, digits: String) -> StoreFuture<'_, Result<ResolveResponse, StoreError>>;

    /// All rows of the inbox, oldest first, at most `limit`.
    fn list_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>>;

    /// How many rows of the inbox wait, and how many were refused.
    fn count_inbox(&self) -> StoreFuture<'_, Result<(u64, u64), StoreError>>;

    /// Every queue with settings or with tasks that have not ended.
    fn list_queues(&self) -> StoreFuture<'_, Result<Vec<QueueView>, StoreError>>;

    /// The tasks that wait for a worker, and what keeps them back.
    fn read_waiting(&self) -> StoreFuture<'_, Result<crate::decide::WaitingTasks, StoreError>>;

    /// How many tasks of its flow go before a task that may be leased; counted up to a thousand.
    fn count_ahead(&self, record: TaskRecord) -> StoreFuture<'_, Result<u64, StoreError>>;

    /// Tasks that run and have this concurrency key, at most a hundred.
    fn running_with_key(&self, key: String) -> StoreFuture<'_, Result<Vec<(TaskId, u32)>, StoreError>>;

    /// Tasks by state, and workers heard of since `since`.
    fn read_status(&self, since: Timestamp) -> StoreFuture<'_, Result<StatusRows, StoreError>>;

    /// Workers heard of since `since`.
    fn list_workers(&self, since: Timestamp) -> StoreFuture<'_, Result<Vec<WorkerView>, StoreError>>;
}
