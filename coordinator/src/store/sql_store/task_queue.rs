//! [`TaskQueue`] on SQL.

use docket_schema::{
    api::{InboxRow, LeaseRequest},
    ids::{BatchId, Epoch, IncarnationId, RunId, TaskId, Timestamp},
    system::{MaxCallCost, PermitCost},
    task::TaskRecord,
};

use super::SqlStore;
use crate::store::{
    AppendError, AppendOutcome, BudgetReservation, CommandBlobs, CommandError, DecideFn, DueTasks,
    HeartbeatOutcome, InboxAction, InboxMove, InboxOutcome, LeaseOutcome, NewTask, PermitOutcome, StoreError,
    StoreFuture, TaskQueue, WorkerHeartbeat,
    queries::{inbox, tasks},
    writer::{
        ChangeInboxRow, CountBatchUsage, DrainWorker, EndCall, LeaseTasks, RenewLeases, ReserveBudget,
        SubmitTasks, TakeInbox, TakePermit, TaskCommand,
    },
};

impl TaskQueue for SqlStore {
    fn execute_command(
        &self,
        task: TaskId,
        decide: DecideFn,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(TaskRecord, Option<AppendOutcome>), CommandError>> {
        Box::pin(async move {
            let CommandBlobs { blobs, required_blobs: names } = blobs;
            let blobs = self.pack_blobs(blobs, now).await?;
            self.execute_write(TaskCommand { task, decide, blobs, required_blobs: names, now }).await
        })
    }

    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, bool)>, AppendError>> {
        Box::pin(self.execute_write(SubmitTasks { tasks, by, now }))
    }

    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<LeaseOutcome, StoreError>> {
        Box::pin(self.execute_write(LeaseTasks { request, runs, lease_ms, now }))
    }

    fn renew_leases(
        &self,
        beat: WorkerHeartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<HeartbeatOutcome, StoreError>> {
        Box::pin(self.execute_write(RenewLeases { heartbeat: beat, lease_ms, now }))
    }

    fn list_expired_leases(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, Epoch)>, StoreError>> {
        Box::pin(tasks::list_expired_leases(&self.pool, now, limit))
    }

    fn list_due_tasks(&self, now: Timestamp, limit: u32) -> StoreFuture<'_, Result<DueTasks, StoreError>> {
        Box::pin(tasks::list_due_tasks(&self.pool, now, limit))
    }

    fn drain_worker(&self, incarnation: IncarnationId) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.execute_write(DrainWorker { incarnation }))
    }

    fn request_permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> StoreFuture<'_, Result<PermitOutcome, StoreError>> {
        Box::pin(self.execute_write(TakePermit { provider, caller, cost, now, until }))
    }

    fn release_permit(&self, run: RunId) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(self.execute_write(EndCall { run }))
    }

    fn reserve_budget(
        &self,
        caller: (RunId, Epoch),
        call: MaxCallCost,
    ) -> StoreFuture<'_, Result<BudgetReservation, StoreError>> {
        Box::pin(self.execute_write(ReserveBudget { caller, call }))
    }

    fn count_batch_usage(&self, batch: BatchId) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.execute_write(CountBatchUsage { batch }))
    }

    fn list_waiting_inbox(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::list_waiting_rows(&self.pool, limit))
    }

    fn consume_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<InboxOutcome>, StoreError>> {
        Box::pin(self.execute_write(TakeInbox { moves, now }))
    }

    fn apply_inbox_action(&self, row: String, act: InboxAction) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.execute_write(ChangeInboxRow { row, action: act }))
    }
}
