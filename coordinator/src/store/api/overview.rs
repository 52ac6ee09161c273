//! Overview of the store's tasks, the first page a person looks at.

use docket_schema::{
    api::{
        BlockedCount, HourlyEndCount, HourlySubmitCount, NearlySpentBudget, QueueView, StateCount,
        TaskSummary, WorkerView,
    },
    ids::{BatchId, TaskId, Timestamp},
};

use super::{StoreError, StoreFuture};

/// The rows of the overview.
#[derive(Debug)]
pub struct OverviewRows {
    /// Tasks waiting for a person, newest first.
    pub awaiting_person: Vec<TaskSummary>,
    /// Blocked tasks by reason.
    pub blocked: Vec<BlockedCount>,
    /// Discarded tasks, regardless of age, most recent first.
    pub discarded: Vec<TaskSummary>,
    /// Total number of discarded tasks.
    pub discarded_count: u64,
    /// Nearly spent budgets.
    pub budgets_near_limit: Vec<NearlySpentBudget>,
    /// Running tasks by start time.
    pub running: Vec<TaskSummary>,
    /// Ended tasks, most recent first.
    pub recently_ended: Vec<TaskSummary>,
    /// Number of ended tasks, by state.
    pub ended_counts: Vec<StateCount>,
    /// Number of all tasks, by state.
    pub tasks: Vec<StateCount>,
    /// Queues with the most unfinished tasks, by name.
    pub queues: Vec<QueueView>,
    /// Number of queues left out.
    pub queues_left_out: u64,
    pub workers: Vec<WorkerView>,
    /// Ended tasks by hour.
    pub ended_by_hour: Vec<HourlyEndCount>,
    /// Submitted tasks by hour.
    pub submitted_by_hour: Vec<HourlySubmitCount>,
}

/// Reads for the overview and for notifications. Every method fails only with [`StoreError`].
pub trait OverviewReads {
    /// Returns the overview at `now`: tasks that ended since `since`, workers heard from since `heard`.
    fn read_overview(
        &self,
        now: Timestamp,
        since: Timestamp,
        heard: Timestamp,
    ) -> StoreFuture<'_, Result<OverviewRows, StoreError>>;

    /// Returns the batches of tasks that depend on this one, directly or not; truncated if there are very
    /// many.
    fn dependent_batches(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<BatchId>, StoreError>>;

    /// Returns the number of ended and not archived tasks, by state.
    fn count_ended_tasks(&self) -> StoreFuture<'_, Result<Vec<StateCount>, StoreError>>;

    /// Returns the number of completed tasks without any verification.
    fn count_unverified_tasks(&self) -> StoreFuture<'_, Result<u64, StoreError>>;
}
