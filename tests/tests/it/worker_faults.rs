//! A fault of a worker is not counted against tasks: they go to other workers, or wait until the fault is fixed, and
//! `why`, `workers` and `doctor` name it. Whole processes on both stores.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId},
    task::{TaskRecord, TaskSpec, TaskState},
    wire::{SubmitRequest, WhyKind},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::Cluster,
    system::{Coordinator, LeaseTime, Place, Sample, Worker, WorkerOptions, fresh_database, room, until},
};
use docket_worker::model::{Provider, ScriptedModel};
use tempfile::TempDir;

const SCRIPT: &str = r#"
after_end = "repeat_last"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
text = "Done."
"#;

const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "notes", "version": "1"}}
    else:
        result = {"tools": [{"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

/// A folder of programs that a worker's sandbox shows, and a server in it that does not start.
struct Tools(TempDir);

impl Tools {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("docket-tools-").tempdir()?;
        std::fs::create_dir(folder.path().join("bin"))?;
        for path in [folder.path().to_owned(), folder.path().join("bin")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        }
        let tools = Self(folder);
        std::fs::write(tools.server(), "import sys\nsys.exit('no licence')\n")?;
        Ok(tools)
    }

    fn server(&self) -> PathBuf {
        self.0.path().join("bin/notes.py")
    }

    /// A worker that has the server.
    fn options(&self, slots: u32) -> WorkerOptions {
        let settings = format!("[mcp.notes]\ncommand = [\"python3\", {:?}]\n", self.server());
        let env = vec![("GOPATH".to_owned(), self.0.path().to_string_lossy().into_owned())];
        WorkerOptions { slots, settings, env, ..WorkerOptions::default() }
    }
}

struct Stage {
    coordinator: Coordinator,
    /// Submitted again for each task.
    spec: TaskSpec,
    _sample: Sample,
}

impl Stage {
    async fn open(place: Place) -> Result<Self> {
        let coordinator = Coordinator::start(place, LeaseTime::Usual).await?;
        let sample = Sample::new(&[("keep.txt", "kept\n")])?;
        let script = sample.script(SCRIPT)?;
        let script = script.to_str().context("a UTF-8 path")?;
        let args = ["--model", "scripted:x", "--script", script, "--queue", "template"];
        let (template, mut spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        spec.queue = QueueName::default();
        Ok(Self { coordinator, spec, _sample: sample })
    }

    async fn submit(&self, spec: &TaskSpec, count: usize) -> Result<Vec<TaskId>> {
        let tasks = vec![spec.clone(); count];
        let answer = self.coordinator.client().submit(&SubmitRequest { tasks, ids: None }).await?;
        Ok(answer.tasks.into_iter().map(|task| task.id).collect())
    }

    /// Waits until `why` says that a fault of a worker keeps the task, in these words.
    async fn is_kept_by_fault(&self, task: TaskId, words: &[&str], worker: &Worker) -> Result<()> {
        let named = until("a fault of the worker", async || {
            let why = self.coordinator.client().why(task).await.ok()?;
            (why.kind == WhyKind::WorkerFault).then_some(why.text)
        });
        let said = named.await.with_context(|| worker.tail())?;
        ensure!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        Ok(())
    }

    /// Waits for the end of tasks; all have completed, in one run each, and nothing was counted.
    async fn all_complete(&self, tasks: &[TaskId], worker: &Worker) -> Result<Vec<TaskRecord>> {
        let mut records = Vec::new();
        for task in tasks {
            let record = self.coordinator.ended(*task).await.with_context(|| worker.tail())?.task;
            let is_clean = record.failures == 0 && record.crashes == 0 && record.runs == 1;
            ensure!(record.state == TaskState::Completed && is_clean, "{record:?}\n{}", worker.tail());
            records.push(record);
        }
        Ok(records)
    }
}

async fn on_both_stores(play: impl AsyncFn(Place) -> Result<()>) -> Result<()> {
    play(Place::Home).await.context("on SQLite")?;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    play(fresh_database(&cluster).await?).await.context("on PostgreSQL")
}

/// One worker whose server does not start: its tasks wait, the fault is named, and they complete once the server is
/// repaired, with its tools, though nobody restarts the worker.
async fn waits_for_a_server(place: Place) -> Result<()> {
    let (stage, tools) = (Stage::open(place).await?, Tools::new()?);
    let worker = Worker::start(&stage.coordinator, &tools.options(2)).await?;
    let tasks = stage.submit(&stage.spec, 5).await?;
    let words = ["MCP server `notes`", "no licence", "nothing is counted"];
    stage.is_kept_by_fault(tasks[0], &words, &worker).await?;
    for command in ["workers", "doctor"] {
        let said = stage.coordinator.docket(&[command]).await?.stdout;
        ensure!(said.contains("mcp_server") && said.contains("no licence"), "{command}: {said}");
    }
    for task in &tasks {
        let record = stage.coordinator.client().task(*task).await?.task;
        ensure!(record.failures == 0 && record.crashes == 0 && !record.state.is_ended(), "{record:?}");
    }
    std::fs::write(tools.server(), SERVER)?;
    let records = stage.all_complete(&tasks, &worker).await?;
    let history = stage.coordinator.history(records[0].last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    let run = records[0].last_run.context("a run")?.to_string();
    let started = stage.coordinator.docket(&["logs", &run, "--json"]).await?.ok()?;
    ensure!(started.contains("mcp__notes__count"), "{started}");
    let log = stage.coordinator.docket(&["logs", &format!("task/{}", tasks[0])]).await?.ok()?;
    ensure!(log.contains("a fault of the worker"), "{log}");
    // The fault is over: nothing names it any more.
    let named = until("a worker without a fault", async || {
        let said = stage.coordinator.docket(&["workers"]).await.ok()?.stdout;
        (!said.contains("mcp_server")).then_some(())
    });
    named.await.with_context(|| worker.tail())?;
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_a_server_that_does_not_start_until_it_is_repaired() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = room().await;
    Box::pin(on_both_stores(waits_for_a_server)).await
}

/// A worker whose server does not start beside one without servers.
async fn goes_to_another(place: Place) -> Result<()> {
    let (stage, tools) = (Stage::open(place).await?, Tools::new()?);
    let faulty = Worker::start(&stage.coordinator, &tools.options(2)).await?;
    let tasks = stage.submit(&stage.spec, 8).await?;
    stage.is_kept_by_fault(tasks[7], &["MCP server `notes`"], &faulty).await?;
    let good = Worker::start(&stage.coordinator, &WorkerOptions::default()).await?;
    stage.all_complete(&tasks, &good).await?;
    let more = stage.submit(&stage.spec, 4).await?;
    stage.all_complete(&more, &good).await?;
    faulty.drain().await?;
    good.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_worker_whose_server_does_not_start_go_to_another() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = room().await;
    Box::pin(on_both_stores(goes_to_another)).await
}

/// A worker with a wrong key, which other tasks of it do not need, and one with the right key.
async fn key_of_another(place: Place) -> Result<()> {
    let stage = Stage::open(place).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let env = vec![("OPENAI_API_KEY".to_owned(), "sk-wrong-0123456789-abcdef".to_owned())];
    let faulty =
        Worker::start(&stage.coordinator, &WorkerOptions { env, ..WorkerOptions::default() }).await?;
    let paid = TaskSpec { model: server.model(Provider::OpenAi, "paid"), script: None, ..stage.spec.clone() };
    let tasks = stage.submit(&paid, 4).await?;
    let words = ["openai:paid", "refused the key", "OPENAI_API_KEY"];
    stage.is_kept_by_fault(tasks[0], &words, &faulty).await?;
    let said = stage.coordinator.docket(&["workers"]).await?.stdout;
    ensure!(said.contains("(key)") && !said.contains("sk-wrong"), "{said}");
    // What needs no key runs there all the same.
    let free = stage.submit(&stage.spec, 3).await?;
    stage.all_complete(&free, &faulty).await?;
    // So few requests, whatever the number of tasks: one at first, and one after each pause.
    let asked = server.calls();
    ensure!(asked < 10, "{asked}");
    let good = Worker::start(&stage.coordinator, &WorkerOptions::default()).await?;
    let records = stage.all_complete(&tasks, &good).await?;
    let history = stage.coordinator.history(records[0].last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    ensure!(history.count("ModelFailed") == 0, "{}", history.kinds());
    faulty.drain().await?;
    good.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_worker_whose_key_is_refused_go_to_one_whose_key_is_taken() -> Result<()> {
    let _room = room().await;
    Box::pin(on_both_stores(key_of_another)).await
}

/// A program that a setup command names is missing on the only worker, and then installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_a_missing_toolchain_and_others_do_not() -> Result<()> {
    let _room = room().await;
    let (stage, tools) = (Stage::open(Place::Home).await?, Tools::new()?);
    let options = WorkerOptions { settings: String::new(), ..tools.options(1) };
    let worker = Worker::start(&stage.coordinator, &options).await?;
    let program = tools.0.path().join("bin/prepare");
    let spec = TaskSpec { setup: vec![program.to_string_lossy().into_owned()], ..stage.spec.clone() };
    let tasks = stage.submit(&spec, 3).await?;
    stage.is_kept_by_fault(tasks[0], &["bin/prepare", "exit status 127"], &worker).await?;
    let others = stage.submit(&stage.spec, 2).await?;
    stage.all_complete(&others, &worker).await?;
    std::fs::write(&program, "#!/bin/sh\ntouch prepared\n")?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    stage.all_complete(&tasks, &worker).await?;
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}
