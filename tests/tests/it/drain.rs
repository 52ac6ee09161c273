//! SIGTERM to a worker in the midst of a turn, which is what a scale-in, a new release and a reboot do: the turn ends,
//! its workspace is snapshotted, the lease is given back at once, and another worker goes on from there.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, run::RunEvent, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, fresh_database, poll_until, send_signal,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};

/// Three turns; the second waits in its middle, with half of its work done.
const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "echo half > two.txt; touch middle; until [ -e go ]; do sleep 0.02; done; rm go middle; echo whole >> two.txt" }
[[turns]]
text = "Done."
"#;

async fn check_drained_run_continues_elsewhere(place: StoreLocation) -> Result<()> {
    // A lease of half a minute: what is free sooner was given back.
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let args = ["--model", "openai:drain", "--queue", "template"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "drain".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "drain")).await?;
    let middle = poll_until("a command in its middle", || {
        worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
    });
    let middle = middle.await.with_context(|| worker.log_tail())?;
    let run = coordinator.client().get_task(task).await?.task.run.context("a run")?;
    let waiting =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "drain")).await?;

    send_signal(worker.pid(), Signal::SIGTERM);
    poll_until("a drain", || worker.log_tail().contains("shutting down").then_some(()))
        .await
        .with_context(|| worker.log_tail())?;
    ensure!(!worker.run_processes().is_empty(), "the turn goes on: {}", worker.log_tail());
    let held = coordinator.client().get_task(task).await?.task;
    ensure!((held.state, held.run) == (TaskState::Running, Some(run)), "{held:?}");
    std::fs::write(middle.join("go"), "")?;
    worker.wait_for_exit().await?;

    let freed = coordinator.client().get_task(task).await?.task;
    ensure!((freed.state, freed.run) == (TaskState::Available, Some(run)), "given back at once: {freed:?}");
    ensure!((freed.failures, freed.crashes) == (0, 0), "nothing is counted: {freed:?}");
    ensure!(coordinator.client().get_task(waiting).await?.runs.is_empty(), "it took no other");
    ensure!(server.call_count() == 2, "no model was asked after the turn: {}", server.call_count());
    let history = coordinator.run_history(run).await?;
    let shot = history.events.iter().rposition(|event| matches!(event, RunEvent::SnapshotTaken(_)));
    let shot = shot.with_context(|| history.format_kinds())?;
    ensure!(history.envelopes[shot].turn.0 == 2, "the turn's end is kept: {}", history.format_kinds());
    let length = history.events.len();

    coordinator.client().cancel(waiting, "seen enough").await?;
    let other = WorkerProcess::start(&coordinator, &options).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| other.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    ensure!((view.task.failures, view.task.crashes, view.runs.len()) == (0, 0, 1), "{view:?}");
    ensure!(
        (view.task.epoch.0, view.task.last_run) == (2, Some(run)),
        "another lease, the same run: {view:?}"
    );
    let history = coordinator.run_history(run).await?;
    ensure!(history.events.len() > length, "the same run went on");
    ensure!(server.call_count() == 3, "no call is repeated: {}", server.call_count());
    history.verify(coordinator.client()).await?;
    other.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_mid_turn_saves_the_turn_and_releases_the_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_drained_run_continues_elsewhere(StoreLocation::HomeFolder)).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_drained_run_continues_elsewhere(fresh_database(&cluster).await?)).await
}
