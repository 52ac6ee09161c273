//! How fast models are asked, on real processes: four runs on one scripted server keep to one limit; a run that waits for its
//! moment is drained, and goes on elsewhere once the limit is gone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId},
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

const RUNS: u32 = 4;
const CALLS: u32 = 6;

fn calls_script() -> String {
    let look = "[[turns]]\ncalls = [{ name = \"list_files\", args = {} }]\n";
    let looks = look.repeat(CALLS as usize - 1);
    format!("{looks}[[turns]]\ntext = \"Done.\"\n")
}

struct LimitFixture {
    coordinator: CoordinatorProcess,
    server: ModelServer,
    spec: TaskSpec,
    queue: QueueName,
    _sample: SampleRepository,
}

impl LimitFixture {
    async fn new() -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let server = ModelServer::start(ScriptedModel::parse(calls_script().as_bytes())?).await?;
        let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
        let args = ["--model", "openai:template", "--queue", "template", "--tests", "true"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        Ok(Self { coordinator, server, spec, queue: "paced".parse()?, _sample: sample })
    }

    async fn start_worker(&self, slots: u32) -> Result<WorkerProcess> {
        let queue = Some(self.queue.clone());
        WorkerProcess::start(&self.coordinator, &WorkerOptions { slots, queue, ..WorkerOptions::default() })
            .await
    }

    async fn submit_task(&self) -> Result<TaskId> {
        let model = self.server.model_ref(ModelProvider::OpenAi, "paced");
        self.coordinator.submit_like(&self.spec, &self.queue, model).await
    }

    async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout()
    }

    async fn wait_until_completed(&self, task: TaskId, worker: &WorkerProcess) -> Result<()> {
        let done = self.coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?.task;
        ensure!(done.state == TaskState::Completed && done.runs == 1, "{done:?}\n{}", worker.log_tail());
        self.coordinator
            .run_history(done.last_run.context("a run")?)
            .await?
            .verify(self.coordinator.client())
            .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_runs_share_one_rate_limit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = Box::pin(LimitFixture::new()).await?;
    let listed = stage.docket_output(&["limit", "set", "openai", "--requests", "5/s"]).await?;
    ensure!(listed.contains("openai") && listed.contains("5/s"), "{listed}");
    let mut tasks = Vec::new();
    for _ in 0..RUNS {
        tasks.push(stage.submit_task().await?);
    }
    let worker = stage.start_worker(RUNS).await?;
    for task in tasks {
        stage.wait_until_completed(task, &worker).await?;
    }
    let requests = stage.server.requests();
    ensure!(requests.len() == (RUNS * CALLS) as usize, "{}", requests.len());
    let mut came: Vec<_> = requests.iter().map(|request| request.received_at).collect();
    came.sort_unstable();
    // None comes before its moment, a fifth of a second after the one before. How late the first one came is what each may
    // seem to be early; without a limit all come within that time.
    let (first, late) = (came[0], Duration::from_secs(1));
    for (n, at) in (0_u32..).zip(&came) {
        let moment = Duration::from_millis(200) * n;
        ensure!(
            at.duration_since(first) + late >= moment,
            "request {n} came after {:?}",
            at.duration_since(first)
        );
    }
    let span = came[came.len() - 1].duration_since(first);
    ensure!(span + late >= Duration::from_millis(200) * (RUNS * CALLS - 1), "{span:?}");
    let log = stage.docket_output(&["logs", "system/limits"]).await?;
    ensure!(log.contains("openai: 5/s requests"), "{log}");
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waiting_for_a_permit_is_drained_and_continues_elsewhere() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = Box::pin(LimitFixture::new()).await?;
    stage.docket_output(&["limit", "set", "openai", "--requests", "1/h"]).await?;
    let worker = stage.start_worker(1).await?;
    let task = stage.submit_task().await?;
    // Its first call took the hour; the second is announced, and waits.
    let run = wait_until("a second call that is announced", async || {
        let run = stage.coordinator.client().get_task(task).await.ok()?.task.run?;
        let history = stage.coordinator.run_history(run).await.ok()?;
        (history.count_kind("ModelRequested") == 2).then_some(run)
    });
    let run = run.await.with_context(|| worker.log_tail())?;
    let id = task.to_string();
    // Its row says that it runs: whoever looks is told that it waits, and for what.
    wait_until("a run that waits", async || {
        let why = stage.docket_output(&["why", &id]).await.ok()?;
        why.contains("it waits for the rate limit of openai, 1/h requests").then_some(())
    })
    .await?;
    for args in [&["ps"][..], &["show", &id], &["ps", "--json"], &["show", "--json", &id]] {
        let said = stage.docket_output(args).await?;
        let known = if args.contains(&"--json") { r#""provider":"openai""# } else { "limit of openai" };
        ensure!(said.contains(known), "{args:?}: {said}");
    }
    worker.drain().await?;
    ensure!(!stage.docket_output(&["why", &id]).await?.contains("limit of openai"), "nobody has it any more");
    let rests = stage.coordinator.client().get_task(task).await?.task;
    ensure!(rests.state == TaskState::Available && (rests.failures, rests.crashes) == (0, 0), "{rests:?}");
    ensure!(stage.server.call_count() == 1, "{} calls", stage.server.call_count());
    ensure!(stage.docket_output(&["limit", "list", "--json"]).await?.contains("3600000"));
    stage.coordinator.run_docket(&["limit", "remove", "openai"]).await?.into_stdout()?;
    let worker = stage.start_worker(1).await?;
    stage.wait_until_completed(task, &worker).await?;
    let history = stage.coordinator.run_history(run).await?;
    ensure!(history.count_kind("ModelRequested") == CALLS as usize, "{}", history.format_kinds());
    ensure!(stage.server.call_count() == u64::from(CALLS), "the call that waited was made once");
    let absent = stage.coordinator.run_docket(&["limit", "remove", "openai"]).await?;
    ensure!(absent.code() == Some(3), "{absent:?}");
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}
