//! Measures the store on this machine's disk: appends compared with raw commits, and tasks without
//! runs.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use docket_coordinator::{
    clock::{self, Clock},
    decide::{RunFinish, finish_run},
    store::{
        AppendCondition, CommandBlobs, DecideFn, GrantedLease, LogAppend, NewBlob, NewTask, Store,
        postgres::{self, ScratchSchema},
        sqlite,
    },
};
use docket_schema::{
    api::LeaseRequest,
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{RunId, StreamId, TaskId, Turn},
    message::CallId,
    run::{RunEnded, RunEvent, RunOutcome, ToolFinished, ToolStatus},
    snapshot::{Manifest, WorkspaceBase},
    task::TaskSpec,
    tool::ToolFacts,
};
use futures_util::future::{try_join, try_join_all};
use serde_json::json;

use super::{
    command::BenchEffort,
    report::{MeasuredValues, median, per_second},
};

/// Number of runs that append concurrently.
const WRITERS: u32 = 32;
/// Tasks per submit.
const SUBMIT_TASKS: usize = 1000;
/// Tasks per lease request.
const LEASE_TASKS: u32 = 500;
/// Lease duration, long enough that nothing needs renewal.
const LEASE_MS: u64 = 600_000;
/// Bytes per raw commit.
const PAGE_BYTES: usize = 4096;

/// Measures the SQLite store in `folder`.
pub(super) async fn measure_sqlite(folder: &Path, effort: BenchEffort) -> anyhow::Result<MeasuredValues> {
    let raw = File::create(folder.join("raw")).context("cannot create the file for raw commits")?;
    let store = BenchStore::new(sqlite::open(&folder.join("docket.db")).await?).await?;
    let mut runs = store.submit_and_lease(WRITERS).await?;
    let (mut raws, mut appends, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let before = measure_raw_commits(&raw, effort.slice_time)?;
        let appended = store.measure_appends(&mut runs, effort.slice_time).await?;
        let base = f64::midpoint(before, measure_raw_commits(&raw, effort.slice_time)?);
        raws.push(base);
        appends.push(appended);
        ratios.push(appended / base);
    }
    let (count, started) = (effort.submits * SUBMIT_TASKS, Instant::now());
    for _ in 0..effort.submits {
        store.submit(SUBMIT_TASKS).await?;
    }
    let submitted = per_second(count, started.elapsed());
    let started = Instant::now();
    let (one, two) = try_join(store.complete_all(), store.complete_all()).await?;
    ensure!(one + two == count, "{} of {count} tasks were completed", one + two);
    let drained = per_second(count, started.elapsed());
    store.store.close().await;
    Ok(vec![
        ("raw_commits_per_s", median(raws)),
        ("appends_per_s", median(appends)),
        ("append_ratio", median(ratios)),
        ("submit_tasks_per_s", submitted),
        ("drain_tasks_per_s", drained),
    ])
}

/// Measures appends in a separate schema on `server`.
pub(super) async fn measure_postgres(server: &str, effort: BenchEffort) -> anyhow::Result<MeasuredValues> {
    let schema = ScratchSchema::create(server).await.context("the user needs CREATE on the database")?;
    let measured = async {
        let store = BenchStore::new(postgres::open(&schema.url()).await?).await?;
        let mut runs = store.submit_and_lease(WRITERS).await?;
        let appends = store.measure_appends(&mut runs, effort.slice_time * 4).await;
        store.store.close().await;
        appends
    };
    let measured = measured.await;
    schema
        .drop_schema()
        .await
        .with_context(|| format!("cannot drop the schema {}; drop it manually", schema.name()))?;
    Ok(vec![("appends_per_s_postgres", measured?)])
}

/// Writes and syncs a page repeatedly for `time`; returns the writes per second.
fn measure_raw_commits(file: &File, time: Duration) -> io::Result<f64> {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < time {
        file.write_all_at(&[1; PAGE_BYTES], 0)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(per_second(count, started.elapsed()))
}

/// Returns the base of a task without a repository, and the bytes of its manifest.
pub(super) fn empty_base() -> (WorkspaceBase, Vec<u8>) {
    let manifest = Manifest::default();
    let bytes = manifest.encode();
    (WorkspaceBase { manifest: BlobRef::for_bytes(&bytes), tree: manifest.tree_hash(), git: None }, bytes)
}

/// Builds a task with the given script, or without one if the task is never run.
pub(super) fn bench_task(script: Option<BlobRef>) -> anyhow::Result<TaskSpec> {
    let spec = json!({
        "title": "A task of docket bench",
        "text": "Nothing is asked.",
        "attempts_max": 1,
        "base": empty_base().0,
        "model": { "provider": "scripted", "name": "bench" },
        "script": script,
    });
    serde_json::from_value(spec).context("a task")
}

/// Builds a tool result event as a run appends it.
fn tool_result_event() -> NewEvent {
    let finished = ToolFinished {
        call: CallId::for_tool(Turn(1), 0),
        status: ToolStatus::Ok,
        content: "A line of a file that was read.\n".repeat(16).into(),
        full: None,
        facts: ToolFacts::default(),
        duration_ms: 1,
    };
    RunEvent::from(finished).encode(Turn(1))
}

/// A store under measurement.
struct BenchStore {
    store: Arc<dyn Store>,
    clock: Clock,
}

impl BenchStore {
    async fn new(store: impl Store) -> anyhow::Result<Self> {
        let new = Self { store: Arc::new(store), clock: Clock::new() };
        let (base, bytes) = empty_base();
        let blob = NewBlob { blob: base.manifest, bytes: bytes.into() };
        new.store.put_blobs(vec![blob], new.clock.now()).await?;
        Ok(new)
    }

    async fn submit(&self, count: usize) -> anyhow::Result<()> {
        let spec = bench_task(None)?;
        let tasks =
            (0..count).map(|_| NewTask { id: TaskId(clock::new_id()), spec: spec.clone(), fork: None });
        self.store.submit(tasks.collect(), "bench".to_owned(), self.clock.now()).await?;
        Ok(())
    }

    /// Leases at most `max` tasks as a newly started worker.
    async fn lease(&self, max: u32) -> anyhow::Result<Vec<GrantedLease>> {
        let request: LeaseRequest = serde_json::from_value(json!({
            "incarnation": clock::new_id(),
            "number": 1,
            "name": "bench",
            "engines": [{ "name": "react", "version": 1 }],
            "max": max,
        }))?;
        let runs = (0..max).map(|_| RunId(clock::new_id())).collect();
        Ok(self.store.lease(request, runs, LEASE_MS, self.clock.now()).await?.leases)
    }

    /// Submits `count` tasks and leases them.
    async fn submit_and_lease(&self, count: u32) -> anyhow::Result<Vec<GrantedLease>> {
        self.submit(count as usize).await?;
        let leases = self.lease(count).await?;
        ensure!(leases.len() == count as usize, "{} of {count} tasks were leased", leases.len());
        Ok(leases)
    }

    /// Appends single events to all runs concurrently for `time`; returns the appends per second.
    async fn measure_appends(&self, runs: &mut [GrantedLease], time: Duration) -> anyhow::Result<f64> {
        let started = Instant::now();
        let writers = runs.iter_mut().map(|lease| async move {
            let mut count = 0;
            while started.elapsed() < time {
                let append = LogAppend {
                    stream: StreamId::Run(lease.run),
                    condition: AppendCondition::LeaseHolder(lease.head.seq, lease.record.epoch),
                    events: vec![tool_result_event()],
                    blobs: Vec::new(),
                    required_blobs: Vec::new(),
                    now: self.clock.now(),
                };
                lease.head = self.store.append(append).await.context("an append was refused")?.head;
                count += 1;
            }
            anyhow::Ok(count)
        });
        let counts: Vec<usize> = try_join_all(writers).await?;
        Ok(per_second(counts.iter().sum(), started.elapsed()))
    }

    /// Leases and completes tasks until none is left; returns their number.
    async fn complete_all(&self) -> anyhow::Result<usize> {
        let mut done = 0;
        loop {
            let leases = self.lease(LEASE_TASKS).await?;
            if leases.is_empty() {
                return Ok(done);
            }
            done += leases.len();
            try_join_all(leases.into_iter().map(|lease| self.complete(lease))).await?;
        }
    }

    async fn complete(&self, lease: GrantedLease) -> anyhow::Result<()> {
        let result = RunOutcome::Succeeded;
        let ended = RunEnded { result, summary: None, tree: None, unverified: None, decision: None };
        let settling = RunFinish {
            run: lease.run,
            seq: lease.head.seq,
            epoch: lease.record.epoch,
            events: vec![RunEvent::from(ended).encode(Turn(0))],
            jitter: 0,
            retry_plan: None,
        };
        let now = self.clock.now();
        let decide: DecideFn = Box::new(move |record| finish_run(record, &settling, now));
        let completed =
            self.store.execute_command(lease.record.id, decide, CommandBlobs::default(), now).await;
        completed.context("a task cannot be completed")?;
        Ok(())
    }
}
