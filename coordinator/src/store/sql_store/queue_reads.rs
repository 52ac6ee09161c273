//! [`QueueReads`] on SQL, with the overview and the tasks of reports.

use docket_schema::{
    api::{
        BatchBudget, BatchList, BatchView, InboxRow, QueueView, ReportCursor, ResolveResponse, RunView,
        StateCount, TaskPage, TaskQuery, WorkerView,
    },
    ids::{BatchId, RunId, TaskId, Timestamp},
    system::BatchSpending,
    task::TaskRecord,
};

use super::SqlStore;
use crate::{
    decide::WaitingTasks,
    store::{
        OverviewReads, OverviewRows, QueueReads, ReportReads, ReportScope, RunLeaseState, RunWithFirstEvent,
        StatusRows, StoreError, StoreFuture, TaskWithDeadline,
        queries::{
            batches, budgets, inbox, overview, queues, report_tasks, resolve_id, runs, task_list, tasks,
            workers,
        },
    },
};

impl QueueReads for SqlStore {
    fn get_task(&self, id: TaskId) -> StoreFuture<'_, Result<Option<TaskWithDeadline>, StoreError>> {
        Box::pin(tasks::read_task(&self.pool, id))
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Result<TaskPage, StoreError>> {
        Box::pin(task_list::list_tasks(&self.pool, query))
    }

    fn explain_task_query(&self, query: TaskQuery) -> StoreFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(task_list::explain_task_list(&self.pool, query))
    }

    fn get_batch(&self, id: BatchId) -> StoreFuture<'_, Result<Option<BatchView>, StoreError>> {
        Box::pin(batches::read_batch(&self.pool, id))
    }

    fn list_batches(&self) -> StoreFuture<'_, Result<BatchList, StoreError>> {
        Box::pin(batches::list_batches(&self.pool))
    }

    fn batch_budget(
        &self,
        batch: BatchId,
    ) -> StoreFuture<'_, Result<(BatchBudget, BatchSpending), StoreError>> {
        Box::pin(budgets::read_batch_budget(&self.pool, batch))
    }

    fn has_budgets(&self) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(budgets::has_budgets(&self.pool))
    }

    fn list_task_runs(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<RunView>, StoreError>> {
        Box::pin(runs::list_task_runs(&self.pool, task))
    }

    fn get_run(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunView>, StoreError>> {
        Box::pin(runs::read_run(&self.pool, id))
    }

    fn run_lease_state(&self, id: RunId) -> StoreFuture<'_, Result<Option<RunLeaseState>, StoreError>> {
        Box::pin(runs::read_run_lease_state(&self.pool, id))
    }

    fn read_lineage(
        &self,
        run: RunId,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<RunWithFirstEvent>, StoreError>> {
        Box::pin(runs::read_lineage(&self.pool, run, limit))
    }

    fn resolve_id(&self, digits: String) -> StoreFuture<'_, Result<ResolveResponse, StoreError>> {
        Box::pin(resolve_id::resolve_id(&self.pool, digits))
    }

    fn list_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::list_all_rows(&self.pool, limit))
    }

    fn count_inbox(&self) -> StoreFuture<'_, Result<(u64, u64), StoreError>> {
        Box::pin(inbox::count_rows(&self.pool))
    }

    fn list_queues(&self) -> StoreFuture<'_, Result<Vec<QueueView>, StoreError>> {
        Box::pin(queues::list_queues(&self.pool))
    }

    fn read_waiting(&self) -> StoreFuture<'_, Result<WaitingTasks, StoreError>> {
        Box::pin(queues::read_waiting(&self.pool))
    }

    fn count_ahead(&self, record: TaskRecord) -> StoreFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move { queues::count_ahead(&self.pool, &record).await })
    }

    fn running_with_key(&self, key: String) -> StoreFuture<'_, Result<Vec<(TaskId, u32)>, StoreError>> {
        Box::pin(queues::running_with_key(&self.pool, key))
    }

    fn read_status(&self, since: Timestamp) -> StoreFuture<'_, Result<StatusRows, StoreError>> {
        Box::pin(workers::read_status(&self.pool, since))
    }

    fn list_workers(&self, since: Timestamp) -> StoreFuture<'_, Result<Vec<WorkerView>, StoreError>> {
        Box::pin(workers::list_workers(&self.pool, since))
    }
}

impl OverviewReads for SqlStore {
    fn read_overview(
        &self,
        now: Timestamp,
        since: Timestamp,
        heard: Timestamp,
    ) -> StoreFuture<'_, Result<OverviewRows, StoreError>> {
        Box::pin(overview::read_overview(&self.pool, now, since, heard))
    }

    fn dependent_batches(&self, task: TaskId) -> StoreFuture<'_, Result<Vec<BatchId>, StoreError>> {
        Box::pin(batches::list_dependent_batches(&self.pool, task))
    }

    fn count_ended_tasks(&self) -> StoreFuture<'_, Result<Vec<StateCount>, StoreError>> {
        Box::pin(overview::count_ended_since(&self.pool, Timestamp(i64::MIN)))
    }

    fn count_unverified_tasks(&self) -> StoreFuture<'_, Result<u64, StoreError>> {
        Box::pin(overview::count_unverified_tasks(&self.pool))
    }
}

impl ReportReads for SqlStore {
    fn list_report_tasks(
        &self,
        of: ReportScope,
        after: Option<ReportCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(ReportCursor, TaskId)>, StoreError>> {
        Box::pin(report_tasks::list_report_tasks(&self.pool, of, after, limit))
    }
}
