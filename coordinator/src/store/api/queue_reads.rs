//! Queue reads: tasks, runs, batches, queues, workers.

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

/// A run and the first event of its stream, if it has started.
pub type RunWithFirstEvent = (RunView, Option<RunEvent>);

/// Tasks by state, and workers.
pub type StatusRows = (Vec<StateCount>, Vec<WorkerView>);

/// Who may append to a run as its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLeaseState {
    /// The holder of this epoch.
    Leased(Epoch),
    /// No one until the next lease; the last one had this epoch.
    Unleased(Epoch),
    /// No one: the run has ended.
    Closed,
}

/// Reads the queue's projections.
///
/// Errors: only [`StoreError`]; a missing item is `None` or empty.
///
/// Invariants: a read never waits for a writer. It sees what was committed when it began, and its cost is
/// bounded by an index or a limit, never by the length of the log.
pub trait QueueReads {
    fn get_task(&self, id: TaskId) -> StoreFuture<'_, Result<Option<TaskWithDeadline>, StoreError>>;

    /// Returns a page of tasks, newest first. The number of tasks examined per page is bounded: if filters
    /// match few, a page can be short or empty and still have a successor.
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Result<TaskPage, StoreError>>;

    /// Returns the database's plan for that query, for tests and for people.
    fn explain_task_query(&self, query: TaskQuery) -> StoreFuture<'_, Result<Vec<String>, StoreError>>;

    /// Returns the state of a batch; `None` if it has no task.
    fn get_batch(&self, id: BatchId) -> StoreFuture<'_, Result<Option<BatchView>, StoreError>>;

    /// Returns the batches of the newest tasks.
    fn list_batches(&self) -> StoreFuture<'_, Result<BatchList, StoreError>>;

    /// Returns a batch's budget and the usage counted for its runs.
    fn batch_budget(
        &self,
        batch: BatchId,
    ) -> StoreFuture<'_, Result<(BatchBudget, BatchSpending), StoreError>>;

    /// Whether any batch has a budget.
    fn has_budgets(&self) -> StoreFuture<'_, Result<bool, StoreError>>;

    /// Returns the runs of a task, oldest first.
    fn list_task_runs(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<RunView>, StoreError>>;

    /// Returns a run.
    fn get_run(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunView>, StoreError>>;

    /// Returns the lease state of a run; `None` if the run does not exist.
    fn run_lease_state(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunLeaseState>, StoreError>>;

    /// Returns every run of the tree of shared history that contains `run`, by id, each with the first event
    /// of its stream; at most `limit`. Empty if the run does not exist.
    fn read_lineage(
        &self,
        run: RunId,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<RunWithFirstEvent>, StoreError>>;

    /// Finds ids that begin with these hexadecimal digits (hyphens are ignored) or, if there are none, ids
    /// that end with them. At most 20 of each kind.
    fn resolve_id(&self, digits: String) -> StoreFuture<'_, Result<ResolveResponse, StoreError>>;

    /// Lists all rows of the inbox, oldest first, at most `limit`.
    fn list_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>>;

    /// Counts the rows of the inbox that wait and those that were rejected.
    fn count_inbox(&self) -> StoreFuture<'_, Result<(u64, u64), StoreError>>;

    /// Lists every queue with settings or with unfinished tasks.
    fn list_queues(&self) -> StoreFuture<'_, Result<Vec<QueueView>, StoreError>>;

    /// Returns the tasks that wait for a worker and the limits that hold them back.
    fn read_waiting(&self) -> StoreFuture<'_, Result<crate::decide::WaitingTasks, StoreError>>;

    /// Counts the tasks ahead of an available task in its flow, up to a thousand.
    fn count_ahead(&self, record: TaskRecord) -> StoreFuture<'_, Result<u64, StoreError>>;

    /// Lists running tasks with this concurrency key, at most a hundred.
    fn running_with_key(&self, key: String) -> StoreFuture<'_, Result<Vec<(TaskId, u32)>, StoreError>>;

    /// Counts tasks by state and lists workers heard from since `since`.
    fn read_status(&self, since: Timestamp) -> StoreFuture<'_, Result<StatusRows, StoreError>>;

    /// Lists workers heard from since `since`.
    fn list_workers(&self, since: Timestamp) -> StoreFuture<'_, Result<Vec<WorkerView>, StoreError>>;
}
