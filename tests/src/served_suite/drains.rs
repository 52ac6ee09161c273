//! Drained workers and drained queues.

use anyhow::{Result, ensure};
use docket_schema::{
    api::{ReleaseReason, ReleaseRequest},
    task::TaskState,
};

use super::{CoordinatorFixture, simple_spec};
use crate::system::wait_until;

pub(super) async fn drained_worker_gets_no_tasks_and_keeps_its_leases(
    world: &CoordinatorFixture,
) -> Result<()> {
    world.submit((0..3).map(|_| simple_spec("default", Some(("key", 2)))).collect()).await?;
    let (drained, other) = (world.new_worker(), world.new_worker());
    let lease = drained.lease_one().await?;
    world.client().drain_worker(drained.incarnation()).await?;
    ensure!(drained.lease(5).await?.is_empty(), "it is given no more");
    let renewed = drained.heartbeat(&[&lease]).await?;
    ensure!(renewed.drain && renewed.lost.is_empty() && renewed.renewed == [lease.task], "{renewed:?}");
    ensure!(other.lease(5).await?.len() == 1, "the other worker has the one place that is left");
    let release = ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Drained };
    world.client().release(lease.task, &release).await?;
    world.ensure_state(lease.task, TaskState::Available).await?;
    let next = other.lease(5).await?;
    ensure!(next.len() == 1, "its place is free again: {next:?}");
    Ok(())
}

pub(super) async fn drained_queue_finishes_running_tasks_and_leases_none(
    world: &CoordinatorFixture,
) -> Result<()> {
    world.coordinator.run_docket(&["queue", "set", "slow", "--max", "2"]).await?.into_stdout()?;
    let tasks = world.submit((0..3).map(|_| simple_spec("slow", None)).collect()).await?;
    let worker = world.new_worker();
    let leases = worker.lease(5).await?;
    ensure!(leases.len() == 2, "{leases:?}");
    let drain = world.coordinator.run_docket(&["queue", "drain", "slow", "--timeout", "80s"]);
    let finish = async {
        // The drain has begun once the queue is paused.
        wait_until("a queue that is paused", async || {
            let queues = world.client().list_queues().await.ok()?.queues;
            queues.iter().any(|queue| queue.name.as_str() == "slow" && queue.settings.paused).then_some(())
        })
        .await?;
        ensure!(worker.lease(5).await?.is_empty(), "it gives nothing");
        for lease in &leases {
            worker.finish(lease).await?;
        }
        Ok(())
    };
    let (drained, finished) = tokio::join!(drain, finish);
    finished?;
    drained?.into_stdout()?;
    world.ensure_state(tasks[2], TaskState::Available).await?;
    ensure!(worker.lease(5).await?.is_empty(), "it is drained, and stays paused");
    world.coordinator.run_docket(&["queue", "unpause", "slow"]).await?.into_stdout()?;
    ensure!(worker.lease_one().await?.task == tasks[2], "continues once opened");
    Ok(())
}
