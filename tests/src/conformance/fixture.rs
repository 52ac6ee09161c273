//! Shared fixtures: a store with its own clock and ids, and the calls of a worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use docket_coordinator::{
    decide::{self, RunFinish},
    store::{
        AppendCondition, AppendError, AppendOutcome, CommandBlobs, CommandError, GrantedLease, LogAppend,
        NewBlob, NewTask, Store,
    },
};
use docket_schema::{
    api::LeaseRequest,
    content::BlobRef,
    event::{Envelope, Head, NewEvent, Payload, TypedEvent as _, verify_and_advance},
    ids::{Epoch, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Timestamp, TreeHash, Turn},
    message::ModelRef,
    run::{RunEnded, RunEvent, RunOutcome},
    snapshot::WorkspaceBase,
    task::{Backoff, SettingsPatch, TaskRecord, TaskSpec},
};
use uuid::Uuid;

use super::TestDatabase;

/// The manifest of every task's base: one empty folder, so that no case mistakes it for a missing tree.
pub const BASE_MANIFEST: &[u8] = b"docket-manifest-1\nd\xed\x01\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0base";

/// Duration of leases in the cases.
pub const LEASE_MS: u64 = 30_000;

/// A store under test; see the module.
#[derive(Clone)]
pub struct StoreFixture {
    pub store: Arc<dyn Store>,
    pub database: TestDatabase,
    now: Arc<AtomicI64>,
    ids: Arc<AtomicU64>,
}

impl StoreFixture {
    /// Opens the store on `database` and stores the blob that tasks reference.
    pub async fn open(database: TestDatabase) -> Self {
        let store = database.open().await;
        let now = Arc::new(AtomicI64::new(1_700_000_000_000_000));
        let world = Self { store, database, now, ids: Arc::new(AtomicU64::new(1)) };
        world.store.put_blobs(vec![new_blob(BASE_MANIFEST)], world.now()).await.expect("stores");
        world
    }

    /// Opens the same database through another coordinator.
    pub async fn open_second_coordinator(&self) -> Self {
        self.with_store(self.database.open().await)
    }

    /// The same fixture with this store.
    pub fn with_store(&self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self.clone() }
    }

    /// Returns the time, which advances by a microsecond per call.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.now.fetch_add(1, Ordering::Relaxed))
    }

    pub fn advance_clock(&self, ms: u64) {
        self.now.fetch_add((ms * 1000) as i64, Ordering::Relaxed);
    }

    /// Sets the clock back.
    pub fn set_clock_back(&self, ms: u64) {
        self.now.fetch_sub((ms * 1000) as i64, Ordering::Relaxed);
    }

    /// Returns an id whose leading digits increase.
    pub fn next_id(&self) -> Uuid {
        let n = self.ids.fetch_add(1, Ordering::Relaxed);
        Uuid::from_u128((u128::from(n) << 80) | 0x7000_8000_0000_0000_0000 | u128::from(n))
    }

    /// Creates a worker.
    pub fn new_worker(&self) -> FakeWorker {
        let incarnation = IncarnationId(self.next_id());
        FakeWorker { fixture: self.clone(), incarnation, number: Arc::new(AtomicU64::new(0)) }
    }

    pub async fn submit(&self, spec: TaskSpec) -> TaskId {
        let id = TaskId(self.next_id());
        let tasks = vec![NewTask { id, spec, fork: None }];
        let answer = self.store.submit(tasks, "test".to_owned(), self.now()).await.expect("accepted");
        assert_eq!(answer.len(), 1);
        answer[0].0
    }

    /// Runs a command.
    pub async fn run_command(
        &self,
        task: TaskId,
        decide: impl Fn(&TaskRecord) -> Result<decide::CommandPlan, decide::CommandRejection>
        + Send
        + Sync
        + 'static,
    ) -> Result<TaskRecord, CommandError> {
        let done =
            self.store.execute_command(task, Box::new(decide), CommandBlobs::default(), self.now()).await;
        done.map(|(record, _)| record)
    }

    /// Ends the leases past their deadline.
    pub async fn expire_leases(&self) -> usize {
        let expired = self.store.list_expired_leases(self.now(), 1000).await.expect("reads");
        for (task, epoch) in &expired {
            let epoch = *epoch;
            self.run_command(*task, move |record| decide::expire(record, epoch)).await.expect("expires");
        }
        expired.len()
    }

    /// Makes due tasks available.
    pub async fn make_due_tasks_available(&self) -> usize {
        let now = self.now();
        let (due, _) = self.store.list_due_tasks(now, 1000).await.expect("reads");
        for task in &due {
            self.run_command(*task, move |record| Ok(decide::make_available(record, now)))
                .await
                .expect("due");
        }
        due.len()
    }

    /// Returns a task's record.
    pub async fn task(&self, id: TaskId) -> TaskRecord {
        self.store.get_task(id).await.expect("reads").expect("exists").0
    }

    /// Reads a whole stream and checks its chain.
    pub async fn read_stream(&self, stream: StreamId) -> Vec<Envelope> {
        let mut all: Vec<Envelope> = Vec::new();
        let mut head = Head::EMPTY;
        loop {
            let page = self.store.read_events(stream.clone(), head.seq, 100).await.expect("reads");
            if page.is_empty() {
                return all;
            }
            for event in page {
                if event.kind == "Forked" && head == Head::EMPTY {
                    head.hash = event.prev_hash;
                }
                head = verify_and_advance(head, &event).expect("the chain holds");
                all.push(event);
            }
        }
    }

    /// Reads the whole feed.
    pub async fn read_feed(&self) -> Vec<Envelope> {
        self.read_feed_after(Position(0)).await
    }

    /// Reads the feed after `after`, once it contains everything committed: a transaction of another test, in
    /// another database on the same server, may hold it back for a while.
    ///
    /// # Panics
    /// Panics if it is held back for longer than a minute.
    pub async fn read_feed_after(&self, after: Position) -> Vec<Envelope> {
        let begun = Instant::now();
        loop {
            let (mut feed, mut committed) = (Vec::<Envelope>::new(), Vec::<Envelope>::new());
            loop {
                let after = feed.last().map_or(after, |event| event.position);
                let page = self.store.read_log(after, 100).await.expect("reads");
                if page.is_empty() {
                    break;
                }
                feed.extend(page);
            }
            loop {
                let after = committed.last().map_or(after, |event| event.position);
                let page = self.store.read_committed_events(after, 100).await.expect("reads");
                if page.is_empty() {
                    break;
                }
                committed.extend(page);
            }
            if feed.len() == committed.len() {
                return feed;
            }
            assert!(begun.elapsed() < FEED_WAIT_MAX, "{} of {} events", feed.len(), committed.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Appends as the holder of a lease.
    pub async fn append(
        &self,
        run: RunId,
        at: Seq,
        epoch: Epoch,
        events: Vec<NewEvent>,
    ) -> Result<AppendOutcome, AppendError> {
        self.store.append(self.lease_append(run, at, epoch, events)).await
    }

    /// Builds an append by a lease's holder.
    pub fn lease_append(&self, run: RunId, at: Seq, epoch: Epoch, events: Vec<NewEvent>) -> LogAppend {
        LogAppend {
            stream: StreamId::Run(run),
            condition: AppendCondition::LeaseHolder(at, epoch),
            events,
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: self.now(),
        }
    }

    /// Appends at the current head.
    pub async fn append_at_head(&self, stream: StreamId, n: u64) -> Result<AppendOutcome, AppendError> {
        let append = LogAppend {
            stream,
            condition: AppendCondition::AtHead,
            events: vec![note_event(n)],
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: self.now(),
        };
        self.store.append(append).await
    }

    /// Checks that the log is complete and that every projection matches it.
    pub async fn check_consistency(&self) {
        let report = docket_coordinator::store::verify_log(&*self.store).await.expect("verifies");
        assert_eq!(report.fault, None, "the log is whole");
        let differences = self.store.rebuild_projections(std::sync::Arc::default()).await.expect("rebuilds");
        assert_eq!(differences, Vec::new(), "projections match the log");
    }
}

/// A fake worker.
#[derive(Clone)]
pub struct FakeWorker {
    /// The fixture it works on.
    pub fixture: StoreFixture,
    pub incarnation: IncarnationId,
    number: Arc<AtomicU64>,
}

impl FakeWorker {
    /// The same worker, connected to another coordinator.
    pub fn with_fixture(&self, world: StoreFixture) -> Self {
        Self { fixture: world, ..self.clone() }
    }

    /// Builds a lease request.
    pub fn next_lease_request(&self, max: u32) -> LeaseRequest {
        LeaseRequest {
            labels: docket_schema::task::LabelSet::default(),
            layers: Vec::new(),
            faults: Vec::new(),
            room: None,
            incarnation: self.incarnation,
            number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
            name: "tester".to_owned(),
            queues: Vec::new(),
            engines: Vec::new(),
            max,
            wait_ms: 0,
        }
    }

    pub async fn send_lease_request(&self, request: LeaseRequest) -> Vec<GrantedLease> {
        let runs = (0..request.max).map(|_| RunId(self.fixture.next_id())).collect();
        self.fixture.store.lease(request, runs, LEASE_MS, self.fixture.now()).await.expect("leases").leases
    }

    pub async fn lease(&self, max: u32) -> Vec<GrantedLease> {
        self.send_lease_request(self.next_lease_request(max)).await
    }

    /// Leases the only available task.
    pub async fn lease_one(&self) -> GrantedLease {
        self.lease(1).await.pop().expect("a task is available")
    }

    /// Ends a lease with the last of `events`.
    pub async fn finish_lease(
        &self,
        lease: &GrantedLease,
        at: Seq,
        events: Vec<NewEvent>,
    ) -> Result<(TaskRecord, Option<AppendOutcome>), CommandError> {
        let settling = RunFinish {
            run: lease.run,
            seq: at,
            epoch: lease.record.epoch,
            events,
            jitter: 0,
            retry_plan: None,
        };
        let now = self.fixture.now();
        let decide = Box::new(move |record: &TaskRecord| decide::finish_run(record, &settling, now));
        self.fixture.store.execute_command(lease.record.id, decide, CommandBlobs::default(), now).await
    }

    /// Ends a run at its head.
    pub async fn end_run(&self, lease: &GrantedLease, outcome: RunOutcome) -> TaskRecord {
        let head =
            self.fixture.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("exists");
        self.finish_lease(lease, head.seq, vec![run_ended(outcome)]).await.expect("settles").0
    }
}

/// Builds the task that the cases submit.
pub fn task_spec(title: &str) -> TaskSpec {
    TaskSpec {
        title: title.to_owned(),
        text: "do it".to_owned(),
        queue: docket_schema::ids::QueueName::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 3,
        crashes_max: 3,
        backoff: Backoff::default(),
        base: WorkspaceBase { manifest: BlobRef::for_bytes(BASE_MANIFEST), tree: TreeHash::ZERO, git: None },
        engine: "react".to_owned(),
        model: ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: None,
        settings: SettingsPatch::default(),
        tests: None,
        requires: Vec::new(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::LeaseConditions::default(),
    }
}

pub fn new_blob(bytes: &[u8]) -> NewBlob {
    NewBlob { blob: BlobRef::for_bytes(bytes), bytes: bytes.to_vec().into() }
}

/// Builds an event that any run stream accepts.
pub fn note_event(n: u64) -> NewEvent {
    let payload = format!(r#"{{"text":{{"text":"note {n}"}}, "by":"test"}}"#);
    NewEvent {
        kind: "Told".to_owned(),
        version: 1,
        turn: Turn(1),
        payload: Payload::parse(payload).expect("json"),
    }
}

/// Builds the event of a run's end.
pub fn run_ended(result: RunOutcome) -> NewEvent {
    RunEvent::from(RunEnded { result, summary: None, tree: None, unverified: None, decision: None })
        .encode(Turn(1))
}

/// Builds the outcome of a failed run.
pub fn failed_outcome() -> RunOutcome {
    RunOutcome::Failed { why: docket_schema::run::FailureKind::Gates, message: "red".to_owned() }
}

/// Maximum time to wait for the feed.
const FEED_WAIT_MAX: Duration = Duration::from_secs(60);
