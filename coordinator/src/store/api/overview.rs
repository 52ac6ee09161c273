//! The overview: what a person looks at first.

use docket_schema::{
    ids::{BatchId, TaskId, Timestamp},
    wire::{
        BlockedCount, BudgetNear, HourCount, HourSubmitted, QueueView, StateCount, TaskBrief, WorkerView,
    },
};

use super::{StoreError, StoreFuture};

/// The rows of the overview.
#[derive(Debug)]
pub struct OverviewRows {
    /// Tasks that wait for a person, the newest first.
    pub asks: Vec<TaskBrief>,
    /// Blocked tasks, by what for.
    pub blocked: Vec<BlockedCount>,
    /// Discarded tasks, whenever that was, the last first.
    pub discarded: Vec<TaskBrief>,
    /// How many there are in all.
    pub discarded_count: u64,
    /// Budgets that are nearly spent.
    pub budgets: Vec<BudgetNear>,
    /// Tasks that run, by since when.
    pub running: Vec<TaskBrief>,
    /// Ended ones, the last first.
    pub ended: Vec<TaskBrief>,
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
    pub hours: Vec<HourCount>,
    /// Submitted tasks by hour.
    pub submitted: Vec<HourSubmitted>,
}

/// Reads for the overview and for notifications. Every method fails only with [`StoreError`].
pub trait Overviews {
    /// The overview at `now`: tasks that ended since `since`, workers heard of since `heard`.
    fn overview(
        &self,
        now: Timestamp,
        since: Timestamp,
        heard: Timestamp,
    ) -> StoreFuture<'_, Result<OverviewRows, StoreError>>;

    /// The batches of the tasks that wait for this one, directly or not; not all where they are very many.
    fn batches_behind(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<BatchId>, StoreError>>;

    /// How many tasks have ended and are not archived, by state.
    fn ended_counts(&self) -> StoreFuture<'_, Result<Vec<StateCount>, StoreError>>;

    /// How many completed tasks nothing verified.
    fn unverified_count(&self) -> StoreFuture<'_, Result<u64, StoreError>>;
}
