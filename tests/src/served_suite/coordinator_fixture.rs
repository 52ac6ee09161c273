//! Shared fixtures: a running coordinator, and workers that lease from it through HTTP.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::clock;
use docket_schema::{
    api::{
        AppendRequest, HeartbeatRequest, HeartbeatResponse, HeldLease, Lease, LeaseRequest, ReleaseReason,
        ReleaseRequest, SubmitRequest,
    },
    content::BlobRef,
    event::NewEvent,
    ids::{IncarnationId, QueueName, RunId, Seq, TaskId},
    run::{EngineRef, RunOutcome},
    task::{ConcurrencyLimit, TaskRecord, TaskSpec, TaskState},
};
use docket_worker::{client::CoordinatorClient, secret::Secret};
use sqlx::Connection as _;

use crate::{
    conformance::fixture::{BASE_MANIFEST, run_ended, task_spec},
    system::{CoordinatorProcess, LeaseDuration, StoreLocation, wait_until},
};

/// A coordinator, and a client with an administrator's token.
pub struct CoordinatorFixture {
    /// The `docket serve` process.
    pub coordinator: CoordinatorProcess,
}

impl CoordinatorFixture {
    /// Starts a coordinator and waits until it listens for hints, if its store supports them.
    ///
    /// # Errors
    /// Returns an error if it does not start or does not listen.
    pub async fn start(place: StoreLocation) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(place.clone(), LeaseDuration::Usual).await?;
        wait_until_listening(&place, 1).await?;
        coordinator.client().put_blob(BlobRef::for_bytes(BASE_MANIFEST), BASE_MANIFEST.into()).await?;
        Ok(Self { coordinator })
    }

    /// Returns a client of the coordinator.
    pub const fn client(&self) -> &CoordinatorClient {
        self.coordinator.client()
    }

    pub fn new_worker(&self) -> LeasingWorker {
        LeasingWorker::new(self.client().clone())
    }

    /// Submits tasks in one request; returns their ids in order.
    ///
    /// # Errors
    /// Returns an error if they are refused.
    pub async fn submit(&self, tasks: Vec<TaskSpec>) -> Result<Vec<TaskId>> {
        let answer = self.client().submit(&SubmitRequest { tasks, ids: None }).await?;
        Ok(answer.tasks.into_iter().map(|task| task.id).collect())
    }

    /// Returns a task's current record.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub async fn task(&self, id: TaskId) -> Result<TaskRecord> {
        Ok(self.client().get_task(id).await?.task)
    }

    /// Checks the state of a task.
    ///
    /// # Errors
    /// Returns an error if it is in another state.
    pub async fn ensure_state(&self, id: TaskId, state: TaskState) -> Result<()> {
        let task = self.task(id).await?;
        ensure!(task.state == state, "task {id} is {} and not {state}", task.state);
        Ok(())
    }
}

/// Builds a task for a queue, with an optional key.
///
/// # Panics
/// Panics if the queue's name is invalid.
pub fn simple_spec(queue: &str, key: Option<(&str, u32)>) -> TaskSpec {
    let mut task = task_spec("served");
    task.queue = queue.parse::<QueueName>().expect("a queue's name");
    task.conditions.concurrency = key.map(|(key, max)| ConcurrencyLimit { key: key.to_owned(), max });
    // A scripted model needs a script; no case runs it.
    task.script = Some(BlobRef::for_bytes(BASE_MANIFEST));
    task
}

/// Waits until this many coordinators of a database hold the listeners' lock. Returns at once on SQLite.
///
/// # Errors
/// Returns an error if the database does not respond or the coordinators do not listen.
pub async fn wait_until_listening(place: &StoreLocation, coordinators: i64) -> Result<()> {
    let StoreLocation::Postgres(url) = place else { return Ok(()) };
    let mut conn = sqlx::PgConnection::connect(url).await?;
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
               WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'docket hints' \
               AND a.datname = current_database()";
    wait_until("coordinators that listen", async || {
        let listening: i64 = sqlx::query_scalar(sql).fetch_one(&mut conn).await.ok()?;
        (listening == coordinators).then_some(())
    })
    .await
}

/// A worker that leases and ends runs through HTTP, like a supervisor and its run processes.
pub struct LeasingWorker {
    client: CoordinatorClient,
    incarnation: IncarnationId,
    number: AtomicU64,
}

impl LeasingWorker {
    /// Creates a worker for the coordinator that the client connects to.
    pub fn new(client: CoordinatorClient) -> Self {
        Self { client, incarnation: IncarnationId(clock::new_id()), number: AtomicU64::new(0) }
    }

    pub const fn incarnation(&self) -> IncarnationId {
        self.incarnation
    }

    /// Leases up to `max` tasks, waiting up to `wait_ms` for the first.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not respond.
    pub async fn lease_with_wait(&self, max: u32, wait_ms: u64) -> Result<Vec<Lease>> {
        let request = LeaseRequest {
            incarnation: self.incarnation,
            number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
            name: "served".to_owned(),
            queues: Vec::new(),
            engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
            labels: docket_schema::task::LabelSet::default(),
            layers: Vec::new(),
            room: None,
            faults: Vec::new(),
            max,
            wait_ms,
        };
        Ok(self.client.lease(&request).await?.leases)
    }

    /// Leases up to `max` of the available tasks.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not respond.
    pub async fn lease(&self, max: u32) -> Result<Vec<Lease>> {
        self.lease_with_wait(max, 0).await
    }

    /// Leases one task.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub async fn lease_one(&self) -> Result<Lease> {
        self.lease(1).await?.pop().context("a task to lease")
    }

    /// Renews leases.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not respond.
    pub async fn heartbeat(&self, leases: &[&Lease]) -> Result<HeartbeatResponse> {
        let held = leases.iter().map(|lease| HeldLease { task: lease.task, epoch: lease.epoch }).collect();
        let request = HeartbeatRequest { incarnation: self.incarnation, held, room: None, wait_ms: 0 };
        Ok(self.client.heartbeat(&request).await?)
    }

    /// Releases a lease.
    ///
    /// # Errors
    /// Returns an error if the lease is no longer valid.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let request = ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Drained };
        self.client.release(lease.task, &request).await?;
        Ok(())
    }

    /// Returns a client with the token of the lease's run.
    ///
    /// # Errors
    /// Returns an error if the token is invalid.
    pub fn run_client(&self, lease: &Lease) -> Result<CoordinatorClient> {
        Ok(self.client.with_token(Secret::new(&lease.token).context("a token")?))
    }

    /// Appends events to the lease's run at `at`; returns the new head.
    ///
    /// # Errors
    /// Returns an error if they are refused.
    pub async fn append(&self, lease: &Lease, at: Seq, events: Vec<NewEvent>) -> Result<Seq> {
        let (blobs, names) = (Vec::new(), Vec::new());
        let request = AppendRequest { expected_seq: at, epoch: lease.epoch, events, blobs, names };
        Ok(self.run_client(lease)?.append(lease.run, &request).await?.head.seq)
    }

    /// Ends the lease's run at its head, with success.
    ///
    /// # Errors
    /// Returns an error if the lease is no longer valid.
    pub async fn finish(&self, lease: &Lease) -> Result<()> {
        let at = self.run_head(lease.run, lease).await?;
        self.append(lease, at, vec![run_ended(RunOutcome::Succeeded)]).await.map(drop)
    }

    async fn run_head(&self, run: RunId, lease: &Lease) -> Result<Seq> {
        let page = self.run_client(lease)?.list_events(run, lease.head.seq, None).await?;
        Ok(page.events.last().map_or(lease.head.seq, |event| event.seq))
    }
}
