//! Tasks for benchmarks, submitted to a store and leased without a real worker.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use docket_coordinator::{
    clock::{self, Clock},
    decide::{RunFinish, finish_run},
    store::{CommandBlobs, DecideFn, NewBlob, NewTask, Store},
};
use docket_schema::{
    api::{AppendRequest, Lease, LeaseRequest},
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, IncarnationId, RunId, Seq, TaskId, Turn},
    message::ModelRef,
    run::{EngineRef, RunEnded, RunEvent, RunOutcome},
    task::{Backoff, SettingsPatch, TaskSpec},
};
use docket_worker::{client::CoordinatorClient, secret::Secret};

use crate::harness::synthetic_events::empty_base;

/// Leases outlast the benchmark, because nothing renews them.
pub(crate) const LEASE_MS: u64 = 600_000;

/// A run leased by the benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeasedRun {
    pub(crate) task: TaskId,
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
}

/// A benchmark worker: an incarnation and its request numbers.
#[derive(Debug)]
pub(crate) struct BenchWorker {
    incarnation: IncarnationId,
    number: u64,
}

impl BenchWorker {
    pub(crate) fn new() -> Self {
        Self { incarnation: IncarnationId(clock::new_id()), number: 0 }
    }

    /// Builds its next request for at most `max` leases.
    pub(crate) fn next_lease_request(&mut self, max: u32, wait_ms: u64) -> LeaseRequest {
        self.number += 1;
        LeaseRequest {
            labels: docket_schema::task::LabelSet::default(),
            layers: Vec::new(),
            faults: Vec::new(),
            room: None,
            incarnation: self.incarnation,
            number: self.number,
            name: "bench".to_owned(),
            queues: Vec::new(),
            engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
            max,
            wait_ms,
        }
    }
}

/// Builds a task that does nothing.
pub(crate) fn idle_task(model: ModelRef) -> TaskSpec {
    TaskSpec {
        title: "A task of docket bench".to_owned(),
        text: "Nothing is asked.".to_owned(),
        queue: Default::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 1,
        crashes_max: 5,
        backoff: Backoff::default(),
        base: empty_base().0,
        engine: "react".to_owned(),
        model,
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

/// The model of tasks that no worker takes.
pub(crate) fn unused_model() -> ModelRef {
    ModelRef { provider: "scripted".to_owned(), name: "bench".to_owned(), base_url: None }
}

pub(crate) async fn put_blob(
    store: &Arc<dyn Store>,
    clock: &Clock,
    bytes: Vec<u8>,
) -> anyhow::Result<BlobRef> {
    let blob = BlobRef::for_bytes(&bytes);
    store
        .put_blobs(vec![NewBlob { blob, bytes: Bytes::from(bytes) }], clock.now())
        .await
        .context("the store does not take a blob")?;
    Ok(blob)
}

/// Submits `count` tasks in one request.
pub(crate) async fn submit_tasks(store: &Arc<dyn Store>, clock: &Clock, count: usize) -> anyhow::Result<()> {
    let spec = idle_task(unused_model());
    let tasks =
        (0..count).map(|_| NewTask { id: TaskId(clock::new_id()), spec: spec.clone(), fork: None }).collect();
    store.submit(tasks, "bench".to_owned(), clock.now()).await.context("the store does not take tasks")?;
    Ok(())
}

pub(crate) async fn lease_tasks(
    store: &Arc<dyn Store>,
    clock: &Clock,
    hand: &mut BenchWorker,
    max: u32,
) -> anyhow::Result<Vec<LeasedRun>> {
    let runs = (0..max).map(|_| RunId(clock::new_id())).collect();
    let granted = store
        .lease(hand.next_lease_request(max, 0), runs, LEASE_MS, clock.now())
        .await
        .context("the store does not lease")?;
    let held = |granted: docket_coordinator::store::GrantedLease| LeasedRun {
        task: granted.record.id,
        run: granted.run,
        epoch: granted.record.epoch,
        seq: granted.head.seq,
    };
    Ok(granted.leases.into_iter().map(held).collect())
}

/// Leases `count` new runs.
pub(crate) async fn lease_new_runs(
    store: &Arc<dyn Store>,
    clock: &Clock,
    count: usize,
) -> anyhow::Result<Vec<LeasedRun>> {
    put_blob(store, clock, empty_base().1).await?;
    submit_tasks(store, clock, count).await?;
    let held = lease_tasks(store, clock, &mut BenchWorker::new(), u32::try_from(count)?).await?;
    ensure!(
        held.len() == count,
        "{} of {count} tasks were leased; is another worker on this store?",
        held.len()
    );
    Ok(held)
}

/// The last event of a run that did nothing.
pub(crate) fn run_ended_event(turn: Turn) -> NewEvent {
    let result = RunOutcome::Succeeded;
    let ended = RunEnded { result, summary: None, tree: None, unverified: None, decision: None };
    RunEvent::from(ended).encode(turn)
}

/// Ends a run at the store with `event` as its last.
pub(crate) async fn end_run(
    store: &Arc<dyn Store>,
    clock: &Clock,
    held: LeasedRun,
    event: NewEvent,
) -> anyhow::Result<()> {
    let LeasedRun { task, run, epoch, seq } = held;
    let settling = RunFinish { run, seq, epoch, events: vec![event], jitter: 0, retry_plan: None };
    let now = clock.now();
    let decide: DecideFn = Box::new(move |record| finish_run(record, &settling, now));
    store
        .execute_command(task, decide, CommandBlobs::default(), now)
        .await
        .context("a run cannot be ended")?;
    Ok(())
}

/// Ends a leased run that did nothing, over HTTP with the run's own token.
pub(crate) async fn end_lease(client: &CoordinatorClient, lease: &Lease) -> anyhow::Result<()> {
    let holder = client.with_token(Secret::new(&lease.token).context("the run's token is empty")?);
    let request = AppendRequest {
        expected_seq: lease.head.seq,
        epoch: lease.epoch,
        events: vec![run_ended_event(Turn(0))],
        blobs: Vec::new(),
        names: Vec::new(),
    };
    holder.append(lease.run, &request).await.context("the run cannot be ended")?;
    Ok(())
}
