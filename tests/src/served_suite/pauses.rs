//! Paused queues and paused tasks.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::SetQueueRequest,
    ids::TaskId,
    task::{TaskBlockedReason, TaskState},
};

use super::{CoordinatorFixture, simple_spec};
use crate::system::{SampleRepository, WorkerOptions, WorkerProcess, poll_until, wait_until};

/// Its first turn ends when it is released.
const WAITING_SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "touch middle; until [ -e go ]; do sleep 0.02; done; rm go middle" }
[[turns]]
text = "Done."
"#;

async fn set_paused(world: &CoordinatorFixture, queue: &str, paused: bool) -> Result<()> {
    let request = SetQueueRequest { paused: Some(paused), running_max: None };
    let view = world.client().set_queue(&queue.parse()?, &request).await?;
    ensure!(view.settings.paused == paused && view.settings.running_max == Some(3), "{view:?}");
    Ok(())
}

pub(super) async fn paused_queue_leases_nothing_until_reopened(world: &CoordinatorFixture) -> Result<()> {
    let limit = SetQueueRequest { paused: None, running_max: Some(3) };
    world.client().set_queue(&"slow".parse()?, &limit).await?;
    world.submit((0..4).map(|_| simple_spec("slow", None)).collect()).await?;
    let worker = world.new_worker();
    let running = worker.lease_one().await?;
    set_paused(world, "slow", true).await?;
    ensure!(worker.lease(5).await?.is_empty(), "it is paused");
    let renewed = worker.heartbeat(&[&running]).await?;
    ensure!(renewed.lost.is_empty(), "running tasks continue: {renewed:?}");
    worker.finish(&running).await?;
    ensure!(worker.lease(5).await?.is_empty(), "it is still paused");
    set_paused(world, "slow", false).await?;
    ensure!(worker.lease(5).await?.len() == 3, "opened, with the limit it had");
    Ok(())
}

pub(super) async fn paused_task_waits_until_unpaused(world: &CoordinatorFixture) -> Result<()> {
    let tasks = world.submit(vec![simple_spec("default", Some(("key", 1)))]).await?;
    let paused = world.client().pause(tasks[0]).await?;
    ensure!(
        (paused.state, paused.blocked_why) == (TaskState::Blocked, Some(TaskBlockedReason::Paused)),
        "{paused:?}"
    );
    let worker = world.new_worker();
    ensure!(worker.lease(5).await?.is_empty(), "it rests");
    world.client().unpause(tasks[0]).await?;
    let lease = worker.lease_one().await?;
    ensure!(lease.task == tasks[0], "{lease:?}");
    worker.finish(&lease).await?;
    world.ensure_state(tasks[0], TaskState::Completed).await
}

/// Returns the workspace of a run that waits in the middle of its first turn.
async fn find_waiting_workspace(worker: &WorkerProcess) -> Result<PathBuf> {
    let is_waiting = |folder: &PathBuf| folder.join("middle").exists();
    let found = poll_until("a command in its middle", || worker.workspaces().into_iter().find(is_waiting));
    found.await.with_context(|| worker.log_tail())
}

async fn wait_for_state(world: &CoordinatorFixture, task: TaskId, state: TaskState) -> Result<()> {
    let reached = wait_until("a state", async || {
        let now = world.task(task).await.ok()?.state;
        (now == state).then_some(())
    });
    reached.await.with_context(|| format!("task {task} is not {state}"))
}

/// With a real worker, because the run process itself suspends at the end of its turn.
pub(super) async fn paused_running_task_frees_its_key(world: &CoordinatorFixture) -> Result<()> {
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(WAITING_SCRIPT)?;
    let script = script.to_str().context("a UTF-8 path")?;
    let args = ["--model", "scripted:rest", "--script", script, "--tests", "true", "--key", "branch/main"];
    let (first, _) = sample.submit(&world.coordinator, &args).await?;
    let (second, _) = sample.submit(&world.coordinator, &args).await?;
    let worker =
        WorkerProcess::start(&world.coordinator, &WorkerOptions { slots: 2, ..WorkerOptions::default() })
            .await?;
    let middle = find_waiting_workspace(&worker).await?;
    world.client().pause(first).await?;
    world.ensure_state(first, TaskState::Running).await?;
    world.ensure_state(second, TaskState::Available).await?;
    std::fs::write(middle.join("go"), "")?;
    wait_for_state(world, first, TaskState::Blocked).await?;
    // Its key is free: the other task is running now, and keeps the first from resuming at once.
    wait_for_state(world, second, TaskState::Running).await?;
    let middle = find_waiting_workspace(&worker).await?;
    world.client().unpause(first).await?;
    world.ensure_state(first, TaskState::Available).await?;
    std::fs::write(middle.join("go"), "")?;
    for task in [second, first] {
        wait_for_state(world, task, TaskState::Completed).await.with_context(|| worker.log_tail())?;
    }
    ensure!(world.client().get_task(first).await?.runs.len() == 1, "the same run went on");
    worker.drain().await
}
