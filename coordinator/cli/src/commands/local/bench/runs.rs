//! Measures worker performance: tasks with run processes and a scripted model, sandboxed commands,
//! and repository files.
//!
//! Run times come from the timestamps in the log, so the poll interval does not affect them.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use docket_coordinator::{
    clock::Clock,
    http::{ApiToken, TokenRole},
    server::{self, ServerConfig},
    store::{Store, sqlite},
};
use docket_sandbox::{CommandExit, CommandSpec};
use docket_schema::{
    api::SubmitRequest,
    content::BlobRef,
    ids::{Seq, StreamId, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};
use docket_worker::{
    client::CoordinatorClient,
    process::{ChildHandle, TrustedSpec, run_trusted},
    workspace::{
        BaseSource, DirtyTreePolicy, MemoryBlobs, PinOptions, WorkspaceOptions, materialize, pin_base,
    },
};
use serde_json::json;

use super::{
    command::BenchEffort,
    report::{MeasuredValues, RUN_MEMORY, TURN_OVERHEAD, median, per_second},
    store::{bench_task, empty_base},
};
use crate::{
    commands::local::doctor::find_in_path,
    context::CliContext,
    output::error::CliError,
    samples::fixture,
    services::{worker, worker_supervisor},
};

const WORKER_NAME: &str = "bench";
/// Slots per CPU: runs wait more than they compute.
const SLOTS_PER_CPU: usize = 2;
/// Turns of the timed run, before the model's final reply.
const TURNS: usize = 20;
/// Delay of the final reply, during which the memory of the run process is read.
const LAST_REPLY_DELAY_MS: u64 = 1000;
/// Poll interval for the end of a task.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Events per page: more than any of these runs has.
const PAGE_EVENTS: u32 = 500;
/// Grace period for the worker to exit.
const END_GRACE: Duration = Duration::from_secs(5);
/// Files in the repository, and files per folder.
const REPOSITORY_FILES: usize = 4000;
const FILES_PER_FOLDER: usize = 20;
/// Commands started before timing begins; they fill the page cache.
const WARM_UP: usize = 2;

/// Measures a worker in the home, with a coordinator over a store in `folder`.
pub(super) async fn measure_runs(
    cx: &CliContext,
    folder: &Path,
    effort: BenchEffort,
) -> anyhow::Result<MeasuredValues> {
    let store: Arc<dyn Store> = Arc::new(sqlite::open(&folder.join("runs.db")).await?);
    let token = cx.home.load_or_create_token().map_err(to_anyhow)?;
    let config =
        ServerConfig::loopback(0, vec![ApiToken::from_token("bench", TokenRole::Admin, token.expose())]);
    let running = server::start_server(Arc::clone(&store), config, Arc::new(Clock::new())).await?;
    let slots = std::thread::available_parallelism().map_or(1, usize::from) * SLOTS_PER_CPU;
    let worker = worker::start_worker_process(cx, &running.url(), WORKER_NAME, u32::try_from(slots)?).await;
    let client = CoordinatorClient::new(&running.url(), token)?;
    let mut stage = BenchWorker { store: Arc::clone(&store), client, worker: worker.map_err(to_anyhow)? };
    let measured = stage.measure(&worker::worker_log_path(cx, WORKER_NAME), effort).await;
    stage.worker.terminate(END_GRACE).await.context("waiting for the worker failed")?;
    running.shutdown().await;
    store.close().await;
    measured
}

fn to_anyhow(failure: CliError) -> anyhow::Error {
    failure.error
}

/// A coordinator and its worker.
struct BenchWorker {
    store: Arc<dyn Store>,
    client: CoordinatorClient,
    worker: ChildHandle,
}

impl BenchWorker {
    async fn measure(&mut self, log: &Path, effort: BenchEffort) -> anyhow::Result<MeasuredValues> {
        self.wait_for_worker(log).await?;
        let (base, bytes) = empty_base();
        self.client.put_blob(base.manifest, bytes.into()).await?;
        let mut starts = Vec::new();
        for _ in 0..effort.single_runs {
            for id in self.submit(build_script(1, 0), 1).await? {
                let record = self.wait_until(id, is_completed).await?;
                let events = self.store.read_events(run_stream(&record)?, Seq(0), 1).await?;
                let first = events.first().context("a run has events")?;
                starts.push(ms_between(record.submitted_at, first.recorded_at));
            }
        }
        let mut values = self.measure_turns().await?;
        values.push(("submit_to_run_ms_p50", median(starts)));
        let (mut from, mut to) = (Timestamp(i64::MAX), Timestamp(i64::MIN));
        for id in self.submit(build_script(1, 0), effort.drained_runs).await? {
            let record = self.wait_until(id, is_completed).await?;
            from = from.min(record.submitted_at);
            to = to.max(record.ended_at.context("a completed task has an end")?);
        }
        let took = Duration::from_micros(u64::try_from(to.0 - from.0)?);
        values.push(("drain_isolated_tasks_per_s", per_second(effort.drained_runs, took)));
        Ok(values)
    }

    /// Measures one long run: its turns from the log, and the memory of its process while the final
    /// reply is delayed.
    async fn measure_turns(&self) -> anyhow::Result<MeasuredValues> {
        let submitted = self.submit(build_script(TURNS, LAST_REPLY_DELAY_MS), 1).await?;
        let id = *submitted.first().context("a task was submitted")?;
        let run = run_stream(&self.wait_until(id, |record| record.last_run.is_some()).await?)?;
        let requests: Vec<Timestamp> = loop {
            let events = self.store.read_events(run.clone(), Seq(0), PAGE_EVENTS).await?;
            let requests = events.iter().filter(|event| event.kind == "ModelRequested");
            let requests: Vec<_> = requests.map(|event| event.recorded_at).collect();
            if requests.len() > TURNS {
                break requests;
            }
            // Polled rarely, because reading the log takes time from the turns.
            tokio::time::sleep(POLL_INTERVAL * 10).await;
        };
        let supervisor = self.worker.pid();
        let process = worker::find_run_process(supervisor).context("the run has no process")?;
        let turns = requests.windows(2).map(|pair| ms_between(pair[0], pair[1]));
        let values = vec![
            (TURN_OVERHEAD, median(turns.collect())),
            (RUN_MEMORY, resident_mb(process)?),
            ("rss_supervisor_mb", resident_mb(supervisor)?),
        ];
        self.wait_until(id, is_completed).await?;
        Ok(values)
    }

    /// Waits until the coordinator has seen the worker.
    async fn wait_for_worker(&mut self, log: &Path) -> anyhow::Result<()> {
        while self.store.read_status(Timestamp(0)).await?.1.is_empty() {
            if let Ok(ended) = tokio::time::timeout(POLL_INTERVAL, self.worker.wait()).await {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("the worker ended ({:?}): {}", ended?, said.lines().last().unwrap_or_default());
            }
        }
        Ok(())
    }

    async fn submit(&self, script: String, count: usize) -> anyhow::Result<Vec<TaskId>> {
        let blob = BlobRef::for_bytes(script.as_bytes());
        self.client.put_blob(blob, script.into()).await?;
        let request = SubmitRequest { tasks: vec![bench_task(Some(blob))?; count], ids: None };
        Ok(self.client.submit(&request).await?.tasks.iter().map(|task| task.id).collect())
    }

    /// Waits until a task satisfies `is_so`.
    async fn wait_until(&self, id: TaskId, is_so: fn(&TaskRecord) -> bool) -> anyhow::Result<TaskRecord> {
        loop {
            let (record, _) = self.store.get_task(id).await?.context("the task is gone")?;
            if is_so(&record) {
                return Ok(record);
            }
            let goes_on = !record.state.is_ended() && record.state != TaskState::Blocked;
            ensure!(goes_on, "a task is {}: {}", record.state, record.message.unwrap_or_default());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn is_completed(record: &TaskRecord) -> bool {
    record.state == TaskState::Completed
}

fn run_stream(record: &TaskRecord) -> anyhow::Result<StreamId> {
    Ok(StreamId::Run(record.last_run.context("the task has no run")?))
}

/// Builds a script that alternates creating and reading a file, then finishes after `delay_ms`.
fn build_script(turns: usize, delay_ms: u64) -> String {
    let call = |turn: usize| match turn % 2 {
        0 => json!({
            "name": "create_file",
            "args": { "path": format!("note_{turn}.txt"), "content": "A line.\n".repeat(40) },
        }),
        _ => json!({ "name": "read_file", "args": { "path": format!("note_{}.txt", turn - 1) } }),
    };
    let mut all: Vec<_> = (0..turns).map(|turn| json!({ "calls": [call(turn)] })).collect();
    all.push(json!({ "text": "It is done.", "delay_ms": delay_ms }));
    json!({ "turns": all }).to_string()
}

fn ms_between(from: Timestamp, to: Timestamp) -> f64 {
    to.0.saturating_sub(from.0) as f64 / 1000.0
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1000.0
}

/// Returns the resident memory of a process in MiB.
fn resident_mb(pid: i32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("its memory is not reported")?;
    Ok(kib.parse::<f64>()? / 1024.0)
}

/// Measures `true` with and without the sandbox, alternately.
pub(super) async fn measure_sandbox(cx: &CliContext, effort: BenchEffort) -> anyhow::Result<MeasuredValues> {
    let scratch = cx.home.ensure_folder("scratch").map_err(to_anyhow)?;
    let made =
        worker_supervisor::prepare_sandbox((cx.config.sandbox, cx.config.sandbox_limits), scratch.clone())
            .await;
    let (sandbox, _workspace) = made.map_err(|why| anyhow!("{why}; run `docket doctor` for details"))?;
    let bare = TrustedSpec {
        program: find_in_path("true").context("`true` was not found in PATH")?,
        args: Vec::new(),
        cwd: scratch,
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(10),
        stdout_bytes_max: 1024,
    };
    let (mut sandboxed, mut overheads) = (Vec::new(), Vec::new());
    for sample in 0..effort.samples + WARM_UP {
        let started = Instant::now();
        run_trusted(bare.clone()).await.context("`true` does not start")?;
        let without = ms_since(started);
        let started = Instant::now();
        let output = sandbox.run(CommandSpec::new(["true"])).await.context("the sandbox fails")?;
        let within = ms_since(started);
        ensure!(output.exit == CommandExit::Exit(0), "`true` ended with {:?}", output.exit);
        if sample >= WARM_UP {
            sandboxed.push(within);
            overheads.push(within - without);
        }
    }
    Ok(vec![("spawn_sandboxed_ms_p50", median(sandboxed)), ("sandbox_overhead_ms_p50", median(overheads))])
}

/// Measures creating a workspace from a repository, and its snapshot after one file changed.
pub(super) async fn measure_files(folder: &Path, effort: BenchEffort) -> anyhow::Result<MeasuredValues> {
    let (source, scratch) = (folder.join("source"), folder.join("pinned"));
    fs::create_dir_all(&scratch)?;
    let path = |file: usize| format!("part_{:03}/file_{file:04}.rs", file / FILES_PER_FOLDER);
    for file in 0..REPOSITORY_FILES {
        fs::create_dir_all(source.join(format!("part_{:03}", file / FILES_PER_FOLDER)))?;
        let text = format!("// File {file}.\n{}", "fn unit() -> u32 { 7 }\n".repeat(10 + file % 50));
        fs::write(source.join(path(file)), text)?;
    }
    fixture::commit_all(&source).await.map_err(to_anyhow)?;
    let mut blobs = MemoryBlobs::default();
    let options = PinOptions { rev: None, dirty: DirtyTreePolicy::Refuse, scratch };
    let pinned = pin_base(&BaseSource::Local(source), &options, &mut blobs).await?;
    let options = WorkspaceOptions::new(folder.join("cache"));
    let started = Instant::now();
    let mut workspace = materialize(&folder.join("workspace"), &pinned.base, &blobs, &options).await?;
    let materialize_ms = ms_since(started);
    workspace.snapshot_walk()?;
    let mut snapshots = Vec::new();
    for sample in 0..effort.samples {
        let changed = workspace.path().join(path(sample * 97 % REPOSITORY_FILES));
        fs::write(changed, format!("// Changed in round {sample}.\n"))?;
        let started = Instant::now();
        let changes = workspace.snapshot_walk()?.changes;
        snapshots.push(ms_since(started));
        ensure!(changes.len() == 1, "{} files changed, not one", changes.len());
    }
    Ok(vec![("materialize_ms", materialize_ms), ("snapshot_ms_p50", median(snapshots))])
}
