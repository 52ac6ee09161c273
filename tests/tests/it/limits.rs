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
    system::{Coordinator, LeaseTime, Place, Sample, Worker, WorkerOptions, room, until},
};
use docket_worker::model::{Provider, ScriptedModel};

const RUNS: u32 = 4;
const CALLS: u32 = 6;

fn script() -> String {
    let look = "[[turns]]\ncalls = [{ name = \"list_files\", args = {} }]\n";
    let looks = look.repeat(CALLS as usize - 1);
    format!("{looks}[[turns]]\ntext = \"Done.\"\n")
}

struct Stage {
    coordinator: Coordinator,
    server: ModelServer,
    spec: TaskSpec,
    queue: QueueName,
    _sample: Sample,
}

impl Stage {
    async fn new() -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
        let server = ModelServer::start(ScriptedModel::parse(script().as_bytes())?).await?;
        let sample = Sample::new(&[("keep.txt", "kept\n")])?;
        let args = ["--model", "openai:template", "--queue", "template", "--tests", "true"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        Ok(Self { coordinator, server, spec, queue: "paced".parse()?, _sample: sample })
    }

    async fn worker(&self, slots: u32) -> Result<Worker> {
        let queue = Some(self.queue.clone());
        Worker::start(&self.coordinator, &WorkerOptions { slots, queue, ..WorkerOptions::default() }).await
    }

    async fn submit(&self) -> Result<TaskId> {
        let model = self.server.model(Provider::OpenAi, "paced");
        self.coordinator.submit_like(&self.spec, &self.queue, model).await
    }

    async fn docket(&self, args: &[&str]) -> Result<String> {
        self.coordinator.docket(args).await?.ok()
    }

    async fn completed(&self, task: TaskId, worker: &Worker) -> Result<()> {
        let done = self.coordinator.ended(task).await.with_context(|| worker.tail())?.task;
        ensure!(done.state == TaskState::Completed && done.runs == 1, "{done:?}\n{}", worker.tail());
        self.coordinator
            .history(done.last_run.context("a run")?)
            .await?
            .verify(self.coordinator.client())
            .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_runs_together_keep_to_one_limit() -> Result<()> {
    let _room = room().await;
    let stage = Box::pin(Stage::new()).await?;
    let listed = stage.docket(&["limit", "set", "openai", "--requests", "5/s"]).await?;
    ensure!(listed.contains("openai") && listed.contains("5/s"), "{listed}");
    let mut tasks = Vec::new();
    for _ in 0..RUNS {
        tasks.push(stage.submit().await?);
    }
    let worker = stage.worker(RUNS).await?;
    for task in tasks {
        stage.completed(task, &worker).await?;
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
    let log = stage.docket(&["logs", "system/limits"]).await?;
    ensure!(log.contains("openai: 5/s requests"), "{log}");
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_its_moment_is_drained_and_goes_on_elsewhere() -> Result<()> {
    let _room = room().await;
    let stage = Box::pin(Stage::new()).await?;
    stage.docket(&["limit", "set", "openai", "--requests", "1/h"]).await?;
    let worker = stage.worker(1).await?;
    let task = stage.submit().await?;
    // Its first call took the hour; the second is announced, and waits.
    let run = until("a second call that is announced", async || {
        let run = stage.coordinator.client().task(task).await.ok()?.task.run?;
        let history = stage.coordinator.history(run).await.ok()?;
        (history.count("ModelRequested") == 2).then_some(run)
    });
    let run = run.await.with_context(|| worker.tail())?;
    let id = task.to_string();
    // Its row says that it runs: whoever looks is told that it waits, and for what.
    until("a run that waits", async || {
        let why = stage.docket(&["why", &id]).await.ok()?;
        why.contains("it waits for the limit of openai, 1/h requests").then_some(())
    })
    .await?;
    for args in [&["ps"][..], &["show", &id], &["ps", "--json"], &["show", "--json", &id]] {
        let said = stage.docket(args).await?;
        let known = if args.contains(&"--json") { r#""provider":"openai""# } else { "the limit of openai" };
        ensure!(said.contains(known), "{args:?}: {said}");
    }
    worker.drain().await?;
    ensure!(!stage.docket(&["why", &id]).await?.contains("limit of openai"), "nobody has it any more");
    let rests = stage.coordinator.client().task(task).await?.task;
    ensure!(rests.state == TaskState::Available && (rests.failures, rests.crashes) == (0, 0), "{rests:?}");
    ensure!(stage.server.calls() == 1, "{} calls", stage.server.calls());
    ensure!(stage.docket(&["limit", "list", "--json"]).await?.contains("3600000"));
    stage.coordinator.docket(&["limit", "remove", "openai"]).await?.ok()?;
    let worker = stage.worker(1).await?;
    stage.completed(task, &worker).await?;
    let history = stage.coordinator.history(run).await?;
    ensure!(history.count("ModelRequested") == CALLS as usize, "{}", history.kinds());
    ensure!(stage.server.calls() == u64::from(CALLS), "the call that waited was made once");
    let absent = stage.coordinator.docket(&["limit", "remove", "openai"]).await?;
    ensure!(absent.code() == Some(3), "{absent:?}");
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}
