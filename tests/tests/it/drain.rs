//! SIGTERM to a worker in the midst of a turn, which is what a scale-in, a new release and a reboot do: the turn ends,
//! its workspace is snapshotted, the lease is given back at once, and another worker goes on from there.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, run::RunEvent, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::Cluster,
    system::{
        Coordinator, LeaseTime, Place, Sample, Signal, Worker, WorkerOptions, fresh_database, room, seen,
        send,
    },
};
use docket_worker::model::{Provider, ScriptedModel};

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

async fn a_drained_run_goes_on_elsewhere(place: Place) -> Result<()> {
    // A lease of half a minute: what is free sooner was given back.
    let coordinator = Coordinator::start(place, LeaseTime::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let args = ["--model", "openai:drain", "--queue", "template"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "drain".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
    let task = coordinator.submit_like(&spec, &queue, server.model(Provider::OpenAi, "drain")).await?;
    let middle = seen("a command in its middle", || {
        worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
    });
    let middle = middle.await.with_context(|| worker.tail())?;
    let run = coordinator.client().task(task).await?.task.run.context("a run")?;
    let waiting = coordinator.submit_like(&spec, &queue, server.model(Provider::OpenAi, "drain")).await?;

    send(worker.pid(), Signal::SIGTERM);
    seen("a drain", || worker.tail().contains("asked to end").then_some(()))
        .await
        .with_context(|| worker.tail())?;
    ensure!(!worker.run_processes().is_empty(), "the turn goes on: {}", worker.tail());
    let held = coordinator.client().task(task).await?.task;
    ensure!((held.state, held.run) == (TaskState::Running, Some(run)), "{held:?}");
    std::fs::write(middle.join("go"), "")?;
    worker.ends_by_itself().await?;

    let freed = coordinator.client().task(task).await?.task;
    ensure!((freed.state, freed.run) == (TaskState::Available, Some(run)), "given back at once: {freed:?}");
    ensure!((freed.failures, freed.crashes) == (0, 0), "nothing is counted: {freed:?}");
    ensure!(coordinator.client().task(waiting).await?.runs.is_empty(), "it took no other");
    ensure!(server.calls() == 2, "no model was asked after the turn: {}", server.calls());
    let history = coordinator.history(run).await?;
    let shot = history.events.iter().rposition(|event| matches!(event, RunEvent::SnapshotTaken(_)));
    let shot = shot.with_context(|| history.kinds())?;
    ensure!(history.envelopes[shot].turn.0 == 2, "the turn's end is kept: {}", history.kinds());
    let length = history.events.len();

    coordinator.client().cancel(waiting, "seen enough").await?;
    let other = Worker::start(&coordinator, &options).await?;
    let view = coordinator.ended(task).await.with_context(|| other.tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    ensure!((view.task.failures, view.task.crashes, view.runs.len()) == (0, 0, 1), "{view:?}");
    ensure!(
        (view.task.epoch.0, view.task.last_run) == (2, Some(run)),
        "another lease, the same run: {view:?}"
    );
    let history = coordinator.history(run).await?;
    ensure!(history.events.len() > length, "the same run went on");
    ensure!(server.calls() == 3, "no call is repeated: {}", server.calls());
    history.verify(coordinator.client()).await?;
    other.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_in_the_midst_of_a_turn_ends_it_keeps_it_and_frees_the_run_at_once() -> Result<()> {
    let _room = room().await;
    Box::pin(a_drained_run_goes_on_elsewhere(Place::Home)).await?;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(a_drained_run_goes_on_elsewhere(fresh_database(&cluster).await?)).await
}
