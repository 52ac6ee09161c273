//! The queue's writes on SQL.

use docket_schema::{
    ids::{BatchId, Epoch, IncarnationId, RunId, TaskId, Timestamp},
    system::{CallCost, PermitCost},
    task::TaskRecord,
    wire::{InboxRow, LeaseRequest},
};

use super::SqlStore;
use crate::store::{
    AppendError, Appended, CommandBlobs, CommandError, Decide, Due, Heartbeat, InboxAct, InboxMove,
    InboxMoved, Leased, NewTask, Permitted, Renewed, Reserved, StoreError, StoreFuture, TaskQueue,
    queries::{inbox, tasks},
    writer::{
        ActInbox, CountBatch, DrainWorker, EndCall, LeaseTasks, RenewLeases, ReserveBudget, SubmitTasks,
        TakeInbox, TakePermit, TaskCommand,
    },
};

impl TaskQueue for SqlStore {
    fn command(
        &self,
        task: TaskId,
        decide: Decide,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<(TaskRecord, Option<Appended>), CommandError>> {
        Box::pin(async move {
            let CommandBlobs { blobs, names } = blobs;
            let blobs = self.pack(blobs, now).await?;
            self.write(TaskCommand { task, decide, blobs, names, now }).await
        })
    }

    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, bool)>, AppendError>> {
        Box::pin(self.write(SubmitTasks { tasks, by, now }))
    }

    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Leased, StoreError>> {
        Box::pin(self.write(LeaseTasks { request, runs, lease_ms, now }))
    }

    fn heartbeat(
        &self,
        beat: Heartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Renewed, StoreError>> {
        Box::pin(self.write(RenewLeases { beat, lease_ms, now }))
    }

    fn expired(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(TaskId, Epoch)>, StoreError>> {
        Box::pin(tasks::find_expired(&self.db, now, limit))
    }

    fn due(&self, now: Timestamp, limit: u32) -> StoreFuture<'_, Result<Due, StoreError>> {
        Box::pin(tasks::find_due(&self.db, now, limit))
    }

    fn drain_worker(&self, incarnation: IncarnationId) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.write(DrainWorker { incarnation }))
    }

    fn permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> StoreFuture<'_, Result<Permitted, StoreError>> {
        Box::pin(self.write(TakePermit { provider, caller, cost, now, until }))
    }

    fn answered(&self, run: RunId) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(self.write(EndCall { run }))
    }

    fn reserve(
        &self,
        caller: (RunId, Epoch),
        call: CallCost,
    ) -> StoreFuture<'_, Result<Reserved, StoreError>> {
        Box::pin(self.write(ReserveBudget { caller, call }))
    }

    fn count_batch(&self, batch: BatchId) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.write(CountBatch { batch }))
    }

    fn inbox_waiting(&self, limit: u32) -> StoreFuture<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::list_waiting(&self.db, limit))
    }

    fn take_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<InboxMoved>, StoreError>> {
        Box::pin(self.write(TakeInbox { moves, now }))
    }

    fn act_inbox(&self, row: String, act: InboxAct) -> StoreFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.write(ActInbox { row, act }))
    }
}
