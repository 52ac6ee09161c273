//! `docket pause` and `docket unpause`: a run rests at its turn's end and its slot is another's, and then goes
//! on where it stood, to the end that nobody disturbed.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId, TreeHash},
    run::RunEvent,
    task::{TaskBlockedReason, TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, fresh_database, poll_until, run_program, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

/// Four turns; the second waits in its middle, with half of its work done.
const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo half > two.txt; touch middle; until [ -e go ]; do sleep 0.02; done; rm go middle; echo whole >> two.txt; chmod 600 two.txt" }
[[turns]]
calls = [{ name = "edit_file", args = { path = "a.txt", edits = [{ search = "a", replace = "b" }] } }]
[[turns]]
text = "Done."
"#;

/// Model calls of a run that nobody disturbs.
const CALLS: u64 = 4;

struct PauseFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
    server: ModelServer,
    spec: TaskSpec,
    queue: QueueName,
}

impl PauseFixture {
    async fn new(place: StoreLocation) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
        let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let args = ["--model", "openai:pause", "--queue", "template"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        let queue: QueueName = "pause".parse()?;
        let options = WorkerOptions { slots: 1, queue: Some(queue.clone()), ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        Ok(Self { coordinator, worker, server, spec, queue })
    }

    async fn submit_task(&self) -> Result<TaskId> {
        let model = self.server.model_ref(ModelProvider::OpenAi, "pause");
        self.coordinator.submit_like(&self.spec, &self.queue, model).await
    }

    /// The workspace of the run that is in the middle of its second turn.
    async fn middle_workspace(&self) -> Result<PathBuf> {
        let is_in_it = |folder: &PathBuf| folder.join("middle").exists();
        let found =
            poll_until("a command in its middle", || self.worker.workspaces().into_iter().find(is_in_it));
        found.await.with_context(|| self.worker.log_tail())
    }

    async fn release_command(&self) -> Result<()> {
        Ok(std::fs::write(self.middle_workspace().await?.join("go"), "")?)
    }

    /// Lets the run go on to its end; the tree there.
    async fn finish_and_hash(&self, task: TaskId) -> Result<TreeHash> {
        let view = self.coordinator.wait_until_ended(task).await.with_context(|| self.worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
        let history = self.coordinator.run_history(view.task.last_run.context("a run")?).await?;
        history.verify(self.coordinator.client()).await?;
        history.final_tree().context("a tree")
    }

    async fn docket_output(&self, args: &[&str]) -> Result<String> {
        self.coordinator.run_docket(args).await?.into_stdout()
    }

    async fn task_row(&self, task: TaskId) -> Result<Value> {
        let rows = self.docket_output(&["ps", "--json"]).await?;
        let rows = rows.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        rows.into_iter().find(|row| row["id"] == task.to_string()).context("its row")
    }
}

async fn check_pause_and_continue(place: StoreLocation) -> Result<()> {
    let stage = PauseFixture::new(place).await?;
    let undisturbed = stage.submit_task().await?;
    stage.release_command().await?;
    let tree = stage.finish_and_hash(undisturbed).await?;
    ensure!(stage.server.call_count() == CALLS, "{} calls", stage.server.call_count());

    // Asked for in the middle of its second turn: that turn is ended first.
    let task = stage.submit_task().await?;
    let id = task.to_string();
    stage.middle_workspace().await?;
    let run = stage.coordinator.client().get_task(task).await?.task.run.context("a run")?;
    let said = stage.docket_output(&["pause", &run.to_string()]).await?;
    ensure!(said.contains("pauses at its next turn"), "{said}");
    ensure!(stage.task_row(task).await?["state"] == "running", "it works on");
    stage.release_command().await?;
    let rests = wait_until("a paused task", async || {
        let view = stage.coordinator.client().get_task(task).await.ok()?;
        (view.task.state == TaskState::Blocked).then_some(view)
    });
    let rests = rests.await.with_context(|| stage.worker.log_tail())?;
    ensure!(rests.task.blocked_why == Some(TaskBlockedReason::Paused) && rests.runs[0].status == "paused");
    ensure!(stage.server.call_count() == CALLS + 2, "no model was asked after the second turn");
    poll_until("no run process", || stage.worker.run_processes().is_empty().then_some(())).await?;
    let row = stage.task_row(task).await?;
    ensure!(row["state"] == "blocked" && row["blocked_why"] == "paused", "{row}");
    for listed in [stage.docket_output(&["ps"]).await?, stage.docket_output(&["show", &id]).await?] {
        ensure!(listed.contains("paused"), "{listed}");
    }

    // Its slot is another's; and one that waits for that slot is held, and may be cancelled.
    let other = stage.submit_task().await?;
    stage.middle_workspace().await?;
    let waiting = stage.submit_task().await?;
    let held = stage.docket_output(&["pause", &waiting.to_string()]).await?;
    ensure!(held.contains("is paused"), "{held}");
    stage.release_command().await?;
    ensure!(stage.finish_and_hash(other).await? == tree, "the other's end");
    let view = stage.coordinator.client().get_task(waiting).await?;
    ensure!(view.runs.is_empty() && view.task.blocked_why == Some(TaskBlockedReason::Paused), "{view:?}");
    let cancelled = stage.docket_output(&["cancel", &waiting.to_string()]).await?;
    ensure!(cancelled.contains("is cancelled"), "{cancelled}");

    let said = stage.docket_output(&["unpause", &id]).await?;
    ensure!(said.contains("is available"), "{said}");
    ensure!(stage.finish_and_hash(task).await? == tree, "another end than undisturbed");
    let view = stage.coordinator.client().get_task(task).await?;
    ensure!(view.task.last_run == Some(run) && view.runs.len() == 1, "the same run went on: {view:?}");
    let counts = (view.task.epoch.0, view.task.failures, view.task.crashes);
    ensure!(counts == (2, 0, 0), "nothing is counted: {counts:?}");
    ensure!(stage.server.call_count() == CALLS * 3, "no call is repeated: {}", stage.server.call_count());
    let history = stage.coordinator.run_history(run).await?;
    let at = history.events.iter().position(|event| matches!(event, RunEvent::RunPaused(_)));
    let at = at.with_context(|| history.format_kinds())?;
    ensure!(history.envelopes[at].turn.0 == 2, "at the turn's end: {}", history.format_kinds());
    ensure!(matches!(history.events[at + 1], RunEvent::Unpaused(_)), "{}", history.format_kinds());
    let followed = stage.docket_output(&["follow", &id]).await?;
    ensure!(followed.contains("pause requested by") && followed.contains("unpaused by"), "{followed}");
    for act in ["pause", "unpause"] {
        let refused = stage.coordinator.run_docket(&[act, id.as_str()]).await?;
        ensure!(refused.code() == Some(4) && refused.stderr.contains("it has ended"), "{refused:?}");
    }
    stage.worker.drain().await?;
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_run_frees_its_slot_and_continues_where_it_stopped() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_pause_and_continue(StoreLocation::HomeFolder)).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_pause_and_continue(fresh_database(&cluster).await?)).await
}

/// Nobody could answer while it waits: the command ends, and says what the run is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_ends_when_its_run_waits_for_an_answer() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script("[[turns]]\ntext = \"BLOCKED: which port?\"\n")?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["run", "x", "--repo", repo, "--model", "scripted:s", "--script", script, "--json"];
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let ended = run_program(TestProgram::Docket, home.path(), &env, &args).await?;
    let row: Value = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
    ensure!(ended.code() == Some(1) && row["state"] == "blocked", "{ended:?}");
    ensure!(row["blocked_why"] == "person" && ended.stderr.contains("which port?"), "{ended:?}");
    // Said to a person, it names the way on.
    let ended = run_program(TestProgram::Docket, home.path(), &env, &args[..args.len() - 1]).await?;
    ensure!(ended.code() == Some(1) && ended.stderr.contains("docket answer"), "{ended:?}");
    Ok(())
}
