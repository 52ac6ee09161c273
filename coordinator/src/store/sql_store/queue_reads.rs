//! The queue's reads on SQL, with the overview and the tasks of reports.

use docket_schema::{
    ids::{BatchId, RunId, TaskId, Timestamp},
    system::Spending,
    task::TaskRecord,
    wire::{
        BatchBudget, BatchList, BatchView, InboxRow, QueueView, ReportPlace, Resolved, RunView, StateCount,
        TaskPage, TaskQuery, WorkerView,
    },
};

use super::SqlStore;
use crate::{
    decide::Waiting,
    store::{
        Holding, OverviewRows, Overviews, QueueReads, Reported, Reports, RunAndFirst, Standing, StoreError,
        StoreFuture, TaskAndDeadline,
        queries::{
            batches, budgets, inbox, overview, queues, report_tasks, resolve, runs, task_list, tasks, workers,
        },
    },
};

impl QueueReads for SqlStore {
    fn task(&self, id: TaskId) -> StoreFuture<'_, Result<Option<TaskAndDeadline>, StoreError>> {
        Box::pin(tasks::read_task(&self.db, id))
    }

    fn tasks(&self, query: TaskQuery) -> StoreFuture<'_, Result<TaskPage, StoreError>> {
        Box::pin(task_list::list_tasks(&self.db, query))
    }

    fn explain_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(task_list::explain_list(&self.db, query))
    }

    fn batch(&self, id: BatchId) -> StoreFuture<'_, Result<Option<BatchView>, StoreError>> {
        Box::pin(batches::read_batch(&self.db, id))
    }

    fn batches(&self) -> StoreFuture<'_, Result<BatchList, StoreError>> {
        Box::pin(batches::list_batches(&self.db))
    }

    fn budget(&self, batch: BatchId) -> StoreFuture<'_, Result<(BatchBudget, Spending), StoreError>> {
        Box::pin(budgets::read_budget(&self.db, batch))
    }

    fn has_budgets(&self) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(budgets::has_budgets(&self.db))
    }

    fn runs_of(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<RunView>, StoreError>> {
        Box::pin(runs::list_runs(&self.db, task))
    }

    fn run(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunView>, StoreError>> {
        Box::pin(runs::read_run(&self.db, id))
    }

    fn holding(&self, id: RunId) -> StoreFuture<'_, Result<Option<Holding>, StoreError>> {
        Box::pin(runs::find_holder(&self.db, id))
    }

    fn lineage(&self, run: RunId, limit: u32) -> StoreFuture<'_, Result<Vec<RunAndFirst>, StoreError>> {
        Box::pin(runs::read_lineage(&self.db, run, limit))
    }

    fn resolve(&self, digits: String) -> StoreFuture<'_, Result<Resolved, StoreError>> {
        Box::pin(resolve::resolve(&self.db, digits))
    }

    fn inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::list_all(&self.db, limit))
    }

    fn inbox_counts(&self) -> StoreFuture<'_, Result<(u64, u64), StoreError>> {
        Box::pin(inbox::count_rows(&self.db))
    }

    fn queues(&self) -> StoreFuture<'_, Result<Vec<QueueView>, StoreError>> {
        Box::pin(queues::list_queues(&self.db))
    }

    fn waiting(&self) -> StoreFuture<'_, Result<Waiting, StoreError>> {
        Box::pin(queues::read_waiting(&self.db))
    }

    fn ahead(&self, record: TaskRecord) -> StoreFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move { queues::count_ahead(&self.db, &record).await })
    }

    fn sharing(&self, key: String) -> StoreFuture<'_, Result<Vec<(TaskId, u32)>, StoreError>> {
        Box::pin(queues::running_with_key(&self.db, key))
    }

    fn status(&self, since: Timestamp) -> StoreFuture<'_, Result<Standing, StoreError>> {
        Box::pin(workers::read_status(&self.db, since))
    }

    fn workers(&self, since: Timestamp) -> StoreFuture<'_, Result<Vec<WorkerView>, StoreError>> {
        Box::pin(workers::list_workers(&self.db, since))
    }
}

impl Overviews for SqlStore {
    fn overview(
        &self,
        now: Timestamp,
        since: Timestamp,
        heard: Timestamp,
    ) -> StoreFuture<'_, Result<OverviewRows, StoreError>> {
        Box::pin(overview::read_overview(&self.db, now, since, heard))
    }

    fn batches_behind(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<BatchId>, StoreError>> {
        Box::pin(batches::list_batches_behind(&self.db, task))
    }

    fn ended_counts(&self) -> StoreFuture<'_, Result<Vec<StateCount>, StoreError>> {
        Box::pin(overview::count_ended_since(&self.db, Timestamp(i64::MIN)))
    }

    fn unverified_count(&self) -> StoreFuture<'_, Result<u64, StoreError>> {
        Box::pin(overview::count_unverified(&self.db))
    }
}

impl Reports for SqlStore {
    fn reported(
        &self,
        of: Reported,
        after: Option<ReportPlace>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(ReportPlace, TaskId)>, StoreError>> {
        Box::pin(report_tasks::list_reported(&self.db, of, after, limit))
    }
}
