//! The store as its callers have it: reads go to the pool, writes to the lane.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::{Envelope, Head},
    ids::{BatchId, BlobHash, Epoch, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp},
    system::{CallCost, PermitCost, Spending, StreamsArchived},
    task::TaskRecord,
    wire::{
        ArchivedTaskPage, ArchivedTaskQuery, BatchBudget, BatchList, BatchView, BlobCheck, InboxRow,
        LeaseRequest, QueueView, Resolved, RunView, TaskPage, TaskQuery, WorkerView,
    },
};
use tokio::sync::{mpsc, oneshot};

use super::{
    AfterEnded, Answer, Append, AppendError, Appended, ArchiveError, Archives, BlobTotals, CommandBlobs,
    CommandError, Decide, Difference, Due, EachEvent, Ended, Heartbeat, Holding, Import, ImportError,
    Imported, InboxAct, InboxMove, InboxMoved, Leased, NewBlob, NewTask, Permitted, Queues, Renewed,
    Reserved, Restore, RestoreError, RunAndFirst, Standing, Store, StoreError, Stub, Taken, TaskAndDeadline,
    Term, archived, archived_tasks,
    ask::{Answered, Ask, AskAppend, AskCommand, AskImport, AskPermit, Job, PackedBlob, pack},
    batches, budgets,
    conn::Db,
    fault::store_error,
    gc, inbox,
    lane::{self, Committer, WAITING_MAX},
    lineage, listing,
    meters::{Meters, Rebuilding, StoreMeters},
    outside::{self, BlobsOutside, Outside},
    postgres::Hints,
    read, read_blobs, read_flow,
};

/// A store on SQLite or PostgreSQL.
pub struct SqlStore {
    pub(super) db: Db,
    pub(super) lanes: Mutex<Vec<mpsc::Sender<Job>>>,
    /// Each ends when its writer has.
    pub(super) writers: Mutex<Vec<oneshot::Receiver<()>>>,
    pub(super) meters: Arc<Meters>,
    hints: Option<Arc<Hints>>,
    outside: Option<Outside>,
}

impl SqlStore {
    /// Starts the writers, at least one. Appends to a stream all go to the same, commands on a task to the same beside the
    /// first, where there is one; the rest goes to the first.
    pub(super) fn start<C: Committer>(db: Db, committers: Vec<C>) -> Result<Self, StoreError> {
        let (mut lanes, mut writers) = (Vec::new(), Vec::new());
        let meters = Arc::new(Meters::new());
        for committer in committers {
            let (lane, queue) = mpsc::channel(WAITING_MAX);
            let writer = lane::start(queue, committer, Arc::clone(&meters))
                .map_err(|source| store_error(db.dialect(), "starting a writer", sqlx::Error::Io(source)))?;
            lanes.push(lane);
            writers.push(writer);
        }
        let (lanes, writers) = (Mutex::new(lanes), Mutex::new(writers));
        Ok(Self { db, lanes, writers, meters, hints: None, outside: None })
    }

    /// With hints between coordinators.
    pub(super) fn with_hints(self, hints: Hints) -> Self {
        Self { hints: Some(Arc::new(hints)), ..self }
    }

    /// With large blobs outside of the database.
    #[must_use]
    pub fn with_blobs(self, outside: BlobsOutside) -> Self {
        Self { outside: Some(Outside::new(outside)), ..self }
    }

    /// Makes rows of blobs: large ones are files outside by then, where there is a place for them.
    async fn pack(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Result<Vec<PackedBlob>, StoreError> {
        match &self.outside {
            Some(outside) => outside.pack(self, &self.db, blobs, now).await,
            None => pack(blobs).await,
        }
    }

    fn lane_of(&self, ask: &Ask) -> Option<mpsc::Sender<Job>> {
        let lanes = self.lanes.lock().expect("nobody panics while holding it");
        lanes.get(lane::of(ask, lanes.len())).cloned()
    }

    async fn ask(&self, ask: Ask) -> Answered {
        let lane = self.lane_of(&ask);
        let (reply, answer) = oneshot::channel();
        let doing = ask.doing();
        let closed = || store_error(self.db.dialect(), doing, sqlx::Error::PoolClosed);
        let Some(lane) = lane else { return ask.failed(closed()) };
        if let Err(mpsc::error::SendError(job)) = lane.send(Job { ask, reply }).await {
            return job.ask.failed(closed());
        }
        drop(lane);
        match answer.await {
            Ok(answered) => answered,
            // The writer ended with the runtime.
            Err(_) => Answered::Secret(Err(closed())),
        }
    }
}

/// The answer, in the kind of the ask; a writer that is gone answers nothing, which is said as such.
macro_rules! answered {
    ($self:expr, $kind:ident, $ask:expr) => {{
        let ask = $ask;
        let doing = ask.doing();
        if let Answered::$kind(answer) = $self.ask(ask).await {
            answer
        } else {
            Err(store_error($self.db.dialect(), doing, sqlx::Error::PoolClosed).into())
        }
    }};
}

impl Store for SqlStore {
    fn backend(&self) -> &'static str {
        self.db.dialect().name()
    }

    fn append(&self, append: Append) -> Answer<'_, Result<Appended, AppendError>> {
        Box::pin(async move {
            let Append { stream, condition, events, blobs, names, now } = append;
            let blobs = self.pack(blobs, now).await?;
            let ask = Ask::Append(AskAppend { stream, condition, events, blobs, names, now });
            answered!(self, Append, ask)
        })
    }

    fn command(
        &self,
        task: TaskId,
        decide: Decide,
        blobs: CommandBlobs,
        now: Timestamp,
    ) -> Answer<'_, Result<(TaskRecord, Option<Appended>), CommandError>> {
        Box::pin(async move {
            let CommandBlobs { blobs, names } = blobs;
            let blobs = self.pack(blobs, now).await?;
            let ask = Ask::Command(AskCommand { task, decide, blobs, names, now });
            let doing = ask.doing();
            if let Answered::Command(answer) = self.ask(ask).await {
                *answer
            } else {
                Err(store_error(self.db.dialect(), doing, sqlx::Error::PoolClosed).into())
            }
        })
    }

    fn submit(
        &self,
        tasks: Vec<NewTask>,
        by: String,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<(TaskId, bool)>, AppendError>> {
        Box::pin(async move { answered!(self, Submit, Ask::Submit { tasks, by, now }) })
    }

    fn lease(
        &self,
        request: LeaseRequest,
        runs: Vec<RunId>,
        lease_ms: u64,
        now: Timestamp,
    ) -> Answer<'_, Result<Leased, StoreError>> {
        Box::pin(async move { answered!(self, Lease, Ask::Lease { request, runs, lease_ms, now }) })
    }

    fn heartbeat(
        &self,
        beat: Heartbeat,
        lease_ms: u64,
        now: Timestamp,
    ) -> Answer<'_, Result<Renewed, StoreError>> {
        Box::pin(async move { answered!(self, Heartbeat, Ask::Heartbeat { beat, lease_ms, now }) })
    }

    fn permit(
        &self,
        provider: String,
        caller: (RunId, Epoch),
        cost: PermitCost,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'_, Result<Permitted, StoreError>> {
        let ask = AskPermit { provider, caller, cost, now, until };
        Box::pin(async move { answered!(self, Permit, Ask::Permit(Box::new(ask))) })
    }

    fn answered(&self, run: RunId) -> Answer<'_, Result<(), StoreError>> {
        Box::pin(async move { answered!(self, CallEnded, Ask::CallEnded { run }) })
    }

    fn reserve(&self, caller: (RunId, Epoch), call: CallCost) -> Answer<'_, Result<Reserved, StoreError>> {
        Box::pin(async move { answered!(self, Reserve, Ask::Reserve { caller, call }) })
    }

    fn count_batch(&self, batch: BatchId) -> Answer<'_, Result<bool, StoreError>> {
        Box::pin(async move { answered!(self, CountBatch, Ask::CountBatch { batch }) })
    }

    fn budget(&self, batch: BatchId) -> Answer<'_, Result<(BatchBudget, Spending), StoreError>> {
        Box::pin(budgets::budget(&self.db, batch))
    }

    fn has_budgets(&self) -> Answer<'_, Result<bool, StoreError>> {
        Box::pin(budgets::any(&self.db))
    }

    fn drain_worker(&self, incarnation: IncarnationId) -> Answer<'_, Result<bool, StoreError>> {
        Box::pin(async move { answered!(self, DrainWorker, Ask::DrainWorker { incarnation }) })
    }

    fn expired(&self, now: Timestamp, limit: u32) -> Answer<'_, Result<Vec<(TaskId, Epoch)>, StoreError>> {
        Box::pin(read::expired(&self.db, now, limit))
    }

    fn due(&self, now: Timestamp, limit: u32) -> Answer<'_, Result<Due, StoreError>> {
        Box::pin(read::due(&self.db, now, limit))
    }

    fn hints(&self) -> Option<Arc<Hints>> {
        self.hints.clone()
    }

    fn time(&self) -> Answer<'_, Result<Option<Timestamp>, StoreError>> {
        Box::pin(read::time(&self.db))
    }

    fn task(&self, id: TaskId) -> Answer<'_, Result<Option<TaskAndDeadline>, StoreError>> {
        Box::pin(read::task(&self.db, id))
    }

    fn tasks(&self, query: TaskQuery) -> Answer<'_, Result<TaskPage, StoreError>> {
        Box::pin(listing::tasks(&self.db, query))
    }

    fn explain_tasks(&self, query: TaskQuery) -> Answer<'_, Result<Vec<String>, StoreError>> {
        Box::pin(listing::explain(&self.db, query))
    }

    fn batch(&self, id: BatchId) -> Answer<'_, Result<Option<BatchView>, StoreError>> {
        Box::pin(batches::batch(&self.db, id))
    }

    fn batches(&self) -> Answer<'_, Result<BatchList, StoreError>> {
        Box::pin(batches::batches(&self.db))
    }

    fn runs_of(&self, task: TaskId) -> Answer<'_, Result<Vec<RunView>, StoreError>> {
        Box::pin(read::runs_of(&self.db, task))
    }

    fn run(&self, id: RunId) -> Answer<'_, Result<Option<RunView>, StoreError>> {
        Box::pin(read::run(&self.db, id))
    }

    fn holding(&self, id: RunId) -> Answer<'_, Result<Option<Holding>, StoreError>> {
        Box::pin(read::holding(&self.db, id))
    }

    fn lineage(&self, run: RunId, limit: u32) -> Answer<'_, Result<Vec<RunAndFirst>, StoreError>> {
        Box::pin(lineage::lineage(&self.db, run, limit))
    }

    fn resolve(&self, digits: String) -> Answer<'_, Result<Resolved, StoreError>> {
        Box::pin(read::resolve(&self.db, digits))
    }

    fn read(
        &self,
        stream: StreamId,
        after: Seq,
        limit: u32,
    ) -> Answer<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(read::events(&self.db, stream, after, limit))
    }

    fn scan(&self, stream: StreamId, after: Seq, each: EachEvent) -> Answer<'_, Result<(), StoreError>> {
        Box::pin(read::scan(&self.db, stream, after, each))
    }

    fn head(&self, stream: StreamId) -> Answer<'_, Result<Option<Head>, StoreError>> {
        Box::pin(read::head(&self.db, stream))
    }

    fn committed_events(&self, after: Position, limit: u32) -> Answer<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(read::committed_events(&self.db, after, limit))
    }

    fn feed(&self, after: Position, limit: u32) -> Answer<'_, Result<Vec<Envelope>, StoreError>> {
        Box::pin(read::feed(&self.db, after, limit))
    }

    fn streams(
        &self,
        after: Option<StreamId>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<(StreamId, Head)>, StoreError>> {
        Box::pin(read::streams(&self.db, after, limit))
    }

    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> Answer<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let blobs = self.pack(blobs, now).await?;
            answered!(self, PutBlobs, Ask::PutBlobs { blobs, now })
        })
    }

    fn blob(&self, hash: BlobHash) -> Answer<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(read_blobs::blob(&self.db, self.outside.as_ref(), hash))
    }

    fn check_blobs(&self, after: Option<BlobHash>) -> Answer<'_, Result<BlobCheck, StoreError>> {
        Box::pin(read_blobs::check_blobs(&self.db, self.outside.as_ref(), after))
    }

    fn blobs_present(&self, hashes: Vec<BlobHash>) -> Answer<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(read_blobs::blobs_present(&self.db, hashes))
    }

    fn import(&self, import: Import, now: Timestamp) -> Answer<'_, Result<Imported, ImportError>> {
        Box::pin(async move { answered!(self, Import, Ask::Import(Box::new(AskImport { import, now }))) })
    }

    fn keep_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(async move {
            let (mut kept, stale) = gc::stored(&self.db, &hashes, now).await?;
            if !stale.is_empty() {
                kept.extend(answered!(self, TouchBlobs, Ask::TouchBlobs { hashes: stale, now })?);
            }
            Ok(kept)
        })
    }

    fn blob_totals(&self) -> Answer<'_, Result<BlobTotals, StoreError>> {
        Box::pin(gc::totals(&self.db))
    }

    fn untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(gc::untouched(&self.db, since, after, limit))
    }

    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> Answer<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(async move {
            // A row's file is its own: read before the row goes, nobody else's can stand there.
            let files = match &self.outside {
                Some(_) => outside::files_of(&self.db, &hashes).await?,
                None => HashMap::new(),
            };
            let dropped: Vec<BlobRef> =
                answered!(self, DropBlobs, Ask::DropBlobs { hashes, untouched_since: since })?;
            if let Some(outside) = &self.outside {
                let files = dropped.iter().filter_map(|blob| files.get(&blob.hash).cloned()).collect();
                outside.remove(files).await?;
            }
            Ok(dropped)
        })
    }

    fn stray_blobs(&self, since: Timestamp, delete: bool) -> Answer<'_, Result<(u64, u64), StoreError>> {
        Box::pin(async move {
            match &self.outside {
                Some(outside) => outside.clear(self, &self.db, since, delete).await,
                None => Ok((0, 0)),
            }
        })
    }

    fn inbox_waiting(&self, limit: u32) -> Answer<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::waiting(&self.db, limit))
    }

    fn inbox(&self, limit: u32) -> Answer<'_, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(inbox::all(&self.db, limit))
    }

    fn inbox_counts(&self) -> Answer<'_, Result<(u64, u64), StoreError>> {
        Box::pin(inbox::counts(&self.db))
    }

    fn take_inbox(
        &self,
        moves: Vec<InboxMove>,
        now: Timestamp,
    ) -> Answer<'_, Result<Vec<InboxMoved>, StoreError>> {
        Box::pin(async move { answered!(self, TakeInbox, Ask::TakeInbox { moves, now }) })
    }

    fn act_inbox(&self, row: String, act: InboxAct) -> Answer<'_, Result<bool, StoreError>> {
        Box::pin(async move { answered!(self, ActInbox, Ask::ActInbox { row, act }) })
    }

    fn queues(&self) -> Answer<'_, Result<Vec<QueueView>, StoreError>> {
        Box::pin(read_flow::queues(&self.db))
    }

    fn waiting(&self) -> Answer<'_, Result<crate::decide::Waiting, StoreError>> {
        Box::pin(read_flow::waiting(&self.db))
    }

    fn ahead(&self, record: TaskRecord) -> Answer<'_, Result<u64, StoreError>> {
        Box::pin(async move { read_flow::ahead(&self.db, &record).await })
    }

    fn sharing(&self, key: String) -> Answer<'_, Result<Vec<(TaskId, u32)>, StoreError>> {
        Box::pin(read_flow::sharing(&self.db, key))
    }

    fn status(&self, since: Timestamp) -> Answer<'_, Result<Standing, StoreError>> {
        Box::pin(read::status(&self.db, since))
    }

    fn workers(&self, since: Timestamp) -> Answer<'_, Result<Vec<WorkerView>, StoreError>> {
        Box::pin(read::workers(&self.db, since))
    }

    fn meters(&self) -> StoreMeters {
        self.meters.view()
    }

    fn secret(&self, fresh: [u8; 32]) -> Answer<'_, Result<[u8; 32], StoreError>> {
        Box::pin(async move { answered!(self, Secret, Ask::Secret { fresh }) })
    }

    fn rebuild(&self, seen: Arc<Rebuilding>) -> Answer<'_, Result<Vec<Difference>, StoreError>> {
        Box::pin(async move { answered!(self, Rebuild, Ask::Rebuild(seen)) })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(self.end())
    }
}

impl Archives for SqlStore {
    fn ended(
        &self,
        before: Timestamp,
        queues: Queues,
        after: Option<AfterEnded>,
        limit: u32,
    ) -> Answer<'_, Result<Vec<Ended>, StoreError>> {
        Box::pin(archived::ended(&self.db, before, queues, after, limit))
    }

    fn remove(&self, archived: StreamsArchived, now: Timestamp) -> Answer<'_, Result<(), ArchiveError>> {
        Box::pin(async move { answered!(self, Remove, Ask::Remove(Box::new((archived, now)))) })
    }

    fn restore(&self, restore: Restore, now: Timestamp) -> Answer<'_, Result<(), RestoreError>> {
        Box::pin(async move { answered!(self, Restore, Ask::Restore(Box::new((restore, now)))) })
    }

    fn stubs(&self, after: Option<StreamId>, limit: u32) -> Answer<'_, Result<Vec<Stub>, StoreError>> {
        Box::pin(archived::stubs(&self.db, after, limit))
    }

    fn archived_tasks(&self, query: ArchivedTaskQuery) -> Answer<'_, Result<ArchivedTaskPage, StoreError>> {
        Box::pin(archived_tasks::list(&self.db, query))
    }

    fn stub(&self, id: uuid::Uuid) -> Answer<'_, Result<Option<Stub>, StoreError>> {
        Box::pin(archived::of_id(&self.db, id))
    }

    fn take_term(&self, term: Term) -> Answer<'_, Result<Taken, StoreError>> {
        Box::pin(async move { answered!(self, Term, Ask::Term(term)) })
    }
}
