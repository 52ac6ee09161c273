//! The overview: what a person looks at first.

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
    /// Tasks that wait for a person, the newest first.
    pub awaiting_person: Vec<TaskSummary>,
    /// Blocked tasks, by what for.
    pub blocked: Vec<BlockedCount>,
    /// Discarded tasks, whenever that was, the last first.
    pub discarded: Vec<TaskSummary>,
    /// How many there are in all.
    pub discarded_count: u64,
    /// Budgets that are nearly spent.
    pub budgets_near_limit: Vec<NearlySpentBudget>,
    /// Tasks that run, by since when.
    pub running: Vec<TaskSummary>,
    /// Ended ones, the last first.
    pub recently_ended: Vec<TaskSummary>,
    /// How many ended, by state.
    pub ended_counts: Vec<StateCount>,
    /// All of them, by state.
    pub tasks: Vec<StateCount>,
    /// The queues with the most tasks that have not ended, by name.
    pub queues: Vec<QueueView>,
    /// How many there are in addition.
    pub queues_left_out: u64,
    /// The workers.
    pub workers: Vec<WorkerView>,
    /// Ended tasks by hour.
    pub ended_by_hour: Vec<HourlyEndCount>,
    /// Submitted tasks by hour.
    pub submitted_by_hour: Vec<HourlySubmitCount>,
}

/// Reads for the overview and for notifications. Every method fails only with [`StoreError`].
pub trait OverviewReads {
    /// The overview at `now`: tasks that ended since `since`, workers heard of since `heard`.
    fn read_overview(
        &self,
        now: Timestamp,
        since: Timestamp,
        heard: Timestamp,
    ) -> StoreFuture<'_, Result<OverviewRows, StoreError>>;

    /// The batches of the tasks that wait for this one, directly or not; not all where they are very many.
    fn dependent_batches(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<BatchId>, StoreError>>;

    /// How many tasks have ended and are not archived, by state.
    fn count_ended_tasks(&self) -> StoreFuture<'_, Result<Vec<StateCount>, StoreError>>;

    /// How many completed tasks nothing verified.
    fn count_unverified_tasks(&self) -> StoreFuture<'_, Result<u64, StoreError>>;
}
