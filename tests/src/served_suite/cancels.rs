//! Cancelled tasks.

use anyhow::{Result, ensure};
use docket_schema::task::TaskState;

use super::{CoordinatorFixture, simple_spec};

pub(super) async fn cancelled_running_task_frees_its_key(world: &CoordinatorFixture) -> Result<()> {
    let tasks =
        world.submit((0..2).map(|_| simple_spec("default", Some(("branch/main", 1)))).collect()).await?;
    let worker = world.new_worker();
    let first = worker.lease_one().await?;
    ensure!(worker.lease(5).await?.is_empty(), "the key is taken");
    world.client().cancel(first.task, "enough").await?;
    world.ensure_state(first.task, TaskState::Cancelled).await?;
    let renewed = worker.heartbeat(&[&first]).await?;
    ensure!(renewed.lost.len() == 1 && renewed.renewed.is_empty(), "its worker learns of it: {renewed:?}");
    ensure!(worker.finish(&first).await.is_err(), "what it brings now is refused");
    let second = worker.lease_one().await?;
    ensure!(second.task == tasks[1], "{second:?}");
    worker.finish(&second).await
}

pub(super) async fn cancelled_waiting_task_is_never_leased(world: &CoordinatorFixture) -> Result<()> {
    let tasks = world.submit((0..3).map(|_| simple_spec("default", Some(("key", 2)))).collect()).await?;
    world.client().cancel(tasks[1], "not needed").await?;
    let worker = world.new_worker();
    let got: Vec<_> = worker.lease(5).await?.iter().map(|lease| lease.task).collect();
    ensure!(got == [tasks[0], tasks[2]], "{got:?}");
    world.ensure_state(tasks[1], TaskState::Cancelled).await
}
