//! A fault of a worker is not counted against tasks: they go to other workers, or wait until the fault is fixed, and
//! `why`, `workers` and `doctor` name it. Whole processes on both stores.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{SubmitRequest, WhyKind},
    ids::{QueueName, TaskId},
    message::ModelRef,
    run::RunEvent,
    task::{TaskBlockedReason, TaskRecord, TaskSpec, TaskState, WORKER_FAULTS_MAX},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, fresh_database, wait_until,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};
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

/// So many workers that a task's attempts are soon made: each tries it again after pauses that double.
const FAULTY_WORKERS: usize = 5;

/// A folder of programs that a worker's sandbox shows, and a server in it that does not start.
struct ToolFolder(TempDir);

impl ToolFolder {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("docket-tools-").tempdir()?;
        std::fs::create_dir(folder.path().join("bin"))?;
        for path in [folder.path().to_owned(), folder.path().join("bin")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        }
        let tools = Self(folder);
        std::fs::write(tools.server_path(), "import sys\nsys.exit('no licence')\n")?;
        Ok(tools)
    }

    fn server_path(&self) -> PathBuf {
        self.0.path().join("bin/notes.py")
    }

    /// A worker that has the server.
    fn worker_options(&self, slots: u32) -> WorkerOptions {
        let settings = format!("[mcp.notes]\ncommand = [\"python3\", {:?}]\n", self.server_path());
        let env = vec![("GOPATH".to_owned(), self.0.path().to_string_lossy().into_owned())];
        WorkerOptions { slots, settings, env, ..WorkerOptions::default() }
    }
}

struct FaultFixture {
    coordinator: CoordinatorProcess,
    /// Submitted again for each task.
    spec: TaskSpec,
    _sample: SampleRepository,
}

impl FaultFixture {
    async fn new(place: StoreLocation) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
        let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
        let script = sample.write_script(SCRIPT)?;
        let script = script.to_str().context("a UTF-8 path")?;
        let args = ["--model", "scripted:x", "--script", script, "--queue", "template"];
        let (template, mut spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        spec.queue = QueueName::default();
        Ok(Self { coordinator, spec, _sample: sample })
    }

    async fn submit_tasks(&self, spec: &TaskSpec, count: usize) -> Result<Vec<TaskId>> {
        let tasks = vec![spec.clone(); count];
        let answer = self.coordinator.client().submit(&SubmitRequest { tasks, ids: None }).await?;
        Ok(answer.tasks.into_iter().map(|task| task.id).collect())
    }

    /// Waits until `why` says that a fault of a worker keeps the task, in these words.
    async fn wait_until_kept_by_fault(
        &self,
        task: TaskId,
        words: &[&str],
        worker: &WorkerProcess,
    ) -> Result<()> {
        let named = wait_until("a fault of the worker", async || {
            let why = self.coordinator.client().explain_task(task).await.ok()?;
            (why.kind == WhyKind::WorkerFault).then_some(why.text)
        });
        let said = named.await.with_context(|| worker.log_tail())?;
        ensure!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        Ok(())
    }

    /// Waits for the end of tasks; all have completed, in one run each, and nothing was counted.
    async fn check_all_complete(&self, tasks: &[TaskId], worker: &WorkerProcess) -> Result<Vec<TaskRecord>> {
        let mut records = Vec::new();
        for task in tasks {
            let record =
                self.coordinator.wait_until_ended(*task).await.with_context(|| worker.log_tail())?.task;
            let is_clean = record.failures == 0 && record.crashes == 0 && record.runs == 1;
            ensure!(record.state == TaskState::Completed && is_clean, "{record:?}\n{}", worker.log_tail());
            records.push(record);
        }
        Ok(records)
    }
}

async fn run_on_both_stores(play: impl AsyncFn(StoreLocation) -> Result<()>) -> Result<()> {
    play(StoreLocation::HomeFolder).await.context("on SQLite")?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    play(fresh_database(&cluster).await?).await.context("on PostgreSQL")
}

/// One worker whose server does not start: its tasks wait, the fault is named, and they complete once the server is
/// repaired, with its tools, though nobody restarts the worker.
async fn check_waits_for_a_server(place: StoreLocation) -> Result<()> {
    let (stage, tools) = (FaultFixture::new(place).await?, ToolFolder::new()?);
    let worker = WorkerProcess::start(&stage.coordinator, &tools.worker_options(2)).await?;
    let tasks = stage.submit_tasks(&stage.spec, 5).await?;
    let words = ["MCP server `notes`", "no licence", "no failure is counted"];
    stage.wait_until_kept_by_fault(tasks[0], &words, &worker).await?;
    for command in ["workers", "doctor"] {
        let said = stage.coordinator.run_docket(&[command]).await?.stdout;
        ensure!(said.contains("mcp_server") && said.contains("no licence"), "{command}: {said}");
    }
    for task in &tasks {
        let record = stage.coordinator.client().get_task(*task).await?.task;
        ensure!(record.failures == 0 && record.crashes == 0 && !record.state.is_ended(), "{record:?}");
    }
    std::fs::write(tools.server_path(), SERVER)?;
    let records = stage.check_all_complete(&tasks, &worker).await?;
    let history = stage.coordinator.run_history(records[0].last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    let run = records[0].last_run.context("a run")?.to_string();
    let started = stage.coordinator.run_docket(&["logs", &run, "--json"]).await?.into_stdout()?;
    ensure!(started.contains("mcp__notes__count"), "{started}");
    let log = stage.coordinator.run_docket(&["logs", &format!("task/{}", tasks[0])]).await?.into_stdout()?;
    ensure!(log.contains("worker fault"), "{log}");
    // The fault is over: nothing names it any more.
    let named = wait_until("a worker without a fault", async || {
        let said = stage.coordinator.run_docket(&["workers"]).await.ok()?.stdout;
        (!said.contains("mcp_server")).then_some(())
    });
    named.await.with_context(|| worker.log_tail())?;
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_a_server_that_does_not_start_until_it_is_repaired() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    Box::pin(run_on_both_stores(check_waits_for_a_server)).await
}

/// A worker whose server does not start beside one without servers.
async fn check_goes_to_another_worker(place: StoreLocation) -> Result<()> {
    let (stage, tools) = (FaultFixture::new(place).await?, ToolFolder::new()?);
    let faulty = WorkerProcess::start(&stage.coordinator, &tools.worker_options(2)).await?;
    let tasks = stage.submit_tasks(&stage.spec, 8).await?;
    stage.wait_until_kept_by_fault(tasks[7], &["MCP server `notes`"], &faulty).await?;
    let good = WorkerProcess::start(&stage.coordinator, &WorkerOptions::default()).await?;
    stage.check_all_complete(&tasks, &good).await?;
    let more = stage.submit_tasks(&stage.spec, 4).await?;
    stage.check_all_complete(&more, &good).await?;
    faulty.drain().await?;
    good.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_worker_whose_server_does_not_start_go_to_another() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    Box::pin(run_on_both_stores(check_goes_to_another_worker)).await
}

/// A worker with a wrong key, which other tasks of it do not need, and one with the right key.
async fn check_goes_to_worker_with_key(place: StoreLocation) -> Result<()> {
    let stage = FaultFixture::new(place).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let env = vec![("OPENAI_API_KEY".to_owned(), "sk-wrong-0123456789-abcdef".to_owned())];
    let faulty =
        WorkerProcess::start(&stage.coordinator, &WorkerOptions { env, ..WorkerOptions::default() }).await?;
    let paid = TaskSpec {
        model: server.model_ref(ModelProvider::OpenAi, "paid"),
        script: None,
        ..stage.spec.clone()
    };
    let tasks = stage.submit_tasks(&paid, 4).await?;
    let words = ["openai:paid", "refused the key", "OPENAI_API_KEY"];
    stage.wait_until_kept_by_fault(tasks[0], &words, &faulty).await?;
    let said = stage.coordinator.run_docket(&["workers"]).await?.stdout;
    ensure!(said.contains("(key)") && !said.contains("sk-wrong"), "{said}");
    // What needs no key runs there all the same.
    let free = stage.submit_tasks(&stage.spec, 3).await?;
    stage.check_all_complete(&free, &faulty).await?;
    // So few requests, whatever the number of tasks: one at first, and one after each pause.
    let asked = server.call_count();
    ensure!(asked < 10, "{asked}");
    let good = WorkerProcess::start(&stage.coordinator, &WorkerOptions::default()).await?;
    let records = stage.check_all_complete(&tasks, &good).await?;
    let history = stage.coordinator.run_history(records[0].last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    ensure!(history.count_kind("ModelFailed") == 0, "{}", history.format_kinds());
    faulty.drain().await?;
    good.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_worker_whose_key_is_refused_go_to_one_whose_key_is_taken() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(run_on_both_stores(check_goes_to_worker_with_key)).await
}

/// Workers of which none can carry the tasks out.
async fn start_faulty_workers(stage: &FaultFixture, options: &WorkerOptions) -> Result<Vec<WorkerProcess>> {
    let mut workers = Vec::new();
    for _ in 0..FAULTY_WORKERS {
        workers.push(WorkerProcess::start(&stage.coordinator, options).await?);
    }
    Ok(workers)
}

impl FaultFixture {
    /// Waits until faults of workers have blocked a task for a person, and nothing else was counted.
    async fn wait_until_blocked_by_faults(
        &self,
        task: TaskId,
        words: &[&str],
        workers: &[WorkerProcess],
    ) -> Result<()> {
        let tails = || workers.iter().map(WorkerProcess::log_tail).collect::<String>();
        let record = async || Some(self.coordinator.client().get_task(task).await.ok()?.task);
        for count in [WORKER_FAULTS_MAX / 2, WORKER_FAULTS_MAX] {
            let counted = wait_until("faults of workers that are counted", async || {
                record().await.filter(|record| record.worker_faults >= count)
            });
            counted.await.with_context(tails)?;
        }
        let blocked = record().await.context("a task")?;
        let is_blocked = blocked.state == TaskState::Blocked
            && blocked.blocked_why == Some(TaskBlockedReason::WorkerFault);
        let is_clean = (blocked.failures, blocked.crashes, blocked.runs) == (0, 0, 1);
        ensure!(is_blocked && is_clean && blocked.worker_faults == WORKER_FAULTS_MAX, "{blocked:?}");
        let why = self.coordinator.run_docket(&["why", &task.to_string()]).await?.stdout;
        let words = words.iter().chain(&["20 attempts in a row", "docket answer"]);
        for word in words {
            ensure!(why.contains(word), "{word} in {why}");
        }
        let log = self.coordinator.run_docket(&["logs", &format!("task/{task}")]).await?.into_stdout()?;
        ensure!(log.contains("waits for a person: 20 attempts in a row"), "{log}");
        Ok(())
    }
}

/// A task that meets a fault on each of many workers: they do not hand it round for ever. Its person mends the cause
/// and says go on.
async fn check_goes_round_and_asks(place: StoreLocation) -> Result<()> {
    let (stage, tools) = (FaultFixture::new(place).await?, ToolFolder::new()?);
    let workers = start_faulty_workers(&stage, &tools.worker_options(1)).await?;
    let task = stage.submit_tasks(&stage.spec, 1).await?[0];
    stage.wait_until_blocked_by_faults(task, &["MCP server `notes`", "no licence"], &workers).await?;
    std::fs::write(tools.server_path(), SERVER)?;
    let words = stage.coordinator.run_docket(&["answer", &task.to_string(), "mended"]).await?;
    ensure!(!words.success() && words.stderr.contains("without text"), "{words:?}");
    let said = stage.coordinator.run_docket(&["answer", &task.to_string()]).await?;
    ensure!(said.success(), "{said:?}");
    let records = stage.check_all_complete(&[task], &workers[0]).await?;
    ensure!(records[0].worker_faults == 0 && records[0].message.is_none(), "{:?}", records[0]);
    let history = stage.coordinator.run_history(records[0].last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    for worker in workers {
        worker.drain().await?;
    }
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_faulting_on_every_worker_asks_a_person() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    Box::pin(run_on_both_stores(check_goes_round_and_asks)).await
}

/// A model to which no key has access, and a server that no worker lists: nobody is left to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_whose_model_no_worker_may_use_ask_a_person() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = FaultFixture::new(StoreLocation::HomeFolder).await?;
    let script = "[[turns]]\nfault = { kind = \"forbidden\", times = 1000 }\ntext = \"Done.\"\n";
    let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
    let workers = start_faulty_workers(&stage, &WorkerOptions::default()).await?;
    let of_model = |model: ModelRef| TaskSpec { model, script: None, ..stage.spec.clone() };
    let forbidden = of_model(server.model_ref(ModelProvider::OpenAi, "dear"));
    let far = "http://192.0.2.1/v1";
    let unlisted = of_model(ModelRef {
        base_url: Some(far.to_owned()),
        ..server.model_ref(ModelProvider::OpenAi, "far")
    });
    let forbidden = stage.submit_tasks(&forbidden, 1).await?[0];
    let unlisted = stage.submit_tasks(&unlisted, 1).await?[0];
    let words = ["openai:dear", "no access to this model", "give the key access"];
    stage.wait_until_blocked_by_faults(forbidden, &words, &workers).await?;
    stage.wait_until_blocked_by_faults(unlisted, &[far, "worker.base_urls"], &workers).await?;
    // One request an attempt.
    ensure!(server.call_count() == u64::from(WORKER_FAULTS_MAX), "{}", server.call_count());
    // Workers that could not carry these out carry out others.
    let free = stage.submit_tasks(&stage.spec, 2).await?;
    stage.check_all_complete(&free, &workers[0]).await?;
    for task in [forbidden, unlisted] {
        stage.coordinator.client().cancel(task, "the wrong model").await?;
    }
    for worker in workers {
        worker.drain().await?;
    }
    stage.coordinator.end_and_check().await
}

/// A runner that only the first worker has. That worker dies after it ran the base check, and a second one takes the run
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_whose_runner_is_on_another_worker_does_not_fail_the_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Patient).await?;
    let settings = "[tests]\ncommand = \"house-runner --all\"\n";
    let sample = SampleRepository::new(&[("keep.txt", "kept\n"), ("docket.toml", settings)])?;
    let (template, spec) =
        sample.submit(&coordinator, &["--model", "openai:x", "--queue", "template"]).await?;
    coordinator.client().cancel(template, "a template").await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let spec =
        TaskSpec { model: server.model_ref(ModelProvider::OpenAi, "x"), queue: QueueName::default(), ..spec };
    let stage = FaultFixture { coordinator, spec, _sample: sample };

    let tools = ToolFolder::new()?;
    let runner = tools.0.path().join("bin/house-runner");
    std::fs::write(&runner, "#!/bin/sh\necho all is well\n")?;
    std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755))?;
    let path = std::env::var("PATH")?;
    let mut options = WorkerOptions { settings: String::new(), base_checks: true, ..tools.worker_options(1) };
    options.env.push(("PATH".to_owned(), format!("{}:{path}", tools.0.path().join("bin").display())));
    // The first answer's append.
    let dies =
        Failpoint { seq: 4, when: FailpointTiming::After, epoch: 1, whom: FailpointTarget::Supervisor };
    options.failpoints = vec![dies];
    let mut first = WorkerProcess::start(&stage.coordinator, &options).await?;
    let task = stage.submit_tasks(&stage.spec, 1).await?[0];
    first.process().wait().await?;
    let second = WorkerProcess::start(
        &stage.coordinator,
        &WorkerOptions { base_checks: true, ..WorkerOptions::default() },
    )
    .await?;
    stage.wait_until_kept_by_fault(task, &["check `tests`", "house-runner is not there"], &second).await?;
    let record = stage.coordinator.client().get_task(task).await?.task;
    ensure!(record.failures == 0 && record.crashes <= 1 && !record.state.is_ended(), "{record:?}");
    // The worker that has the runner comes back.
    first.restart().await?;
    let record = stage.coordinator.wait_until_ended(task).await.with_context(|| first.log_tail())?.task;
    let is_clean = record.failures == 0 && record.runs == 1 && record.unverified.is_none();
    ensure!(record.state == TaskState::Completed && is_clean, "{record:?}\n{}", second.log_tail());

    let history = stage.coordinator.run_history(record.last_run.context("a run")?).await?;
    history.verify(stage.coordinator.client()).await?;
    let recovered = history.events.iter().position(|event| matches!(event, RunEvent::RunRecovered(_)));
    let checked = history.events.iter().position(
        |event| matches!(event, RunEvent::BaseChecked(base) if base.passed && base.gate.name == "tests"),
    );
    ensure!(checked.is_some() && checked < recovered, "{}", history.format_kinds());
    ensure!(history.count_kind("GateFinished") == 1, "{}", history.format_kinds());
    // The model never heard of it.
    let asked = server.requests();
    let bodies = asked.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned());
    let told: Vec<String> =
        bodies.filter(|body| body.contains("final check") && body.contains("failed")).collect();
    ensure!(
        told.is_empty() && history.count_kind("ModelAnswered") == 2,
        "{told:#?}\n{}",
        history.format_kinds()
    );
    first.drain().await?;
    second.drain().await?;
    stage.coordinator.end_and_check().await
}

/// A program that a setup command names is missing on the only worker, and then installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_for_a_missing_toolchain_and_others_do_not() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (stage, tools) = (FaultFixture::new(StoreLocation::HomeFolder).await?, ToolFolder::new()?);
    let options = WorkerOptions { settings: String::new(), ..tools.worker_options(1) };
    let worker = WorkerProcess::start(&stage.coordinator, &options).await?;
    let program = tools.0.path().join("bin/prepare");
    let spec = TaskSpec { setup: vec![program.to_string_lossy().into_owned()], ..stage.spec.clone() };
    let tasks = stage.submit_tasks(&spec, 3).await?;
    stage.wait_until_kept_by_fault(tasks[0], &["bin/prepare", "exit status 127"], &worker).await?;
    let others = stage.submit_tasks(&stage.spec, 2).await?;
    stage.check_all_complete(&others, &worker).await?;
    std::fs::write(&program, "#!/bin/sh\ntouch prepared\n")?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    stage.check_all_complete(&tasks, &worker).await?;
    worker.drain().await?;
    stage.coordinator.end_and_check().await
}
