//! Drained workers and drained queues.

use anyhow::{Result, ensure};
use docket_schema::{
    task::TaskState,
    wire::{ReleaseReason, ReleaseRequest},
};

use super::{ServedWorld, plain_spec};
use crate::system::until;

pub(super) async fn a_drained_worker_gets_no_more_and_keeps_what_it_has(world: &ServedWorld) -> Result<()> {
    world.submit((0..3).map(|_| plain_spec("default", Some(("key", 2)))).collect()).await?;
    let (drained, other) = (world.worker(), world.worker());
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

pub(super) async fn a_drained_queue_ends_what_runs_and_gives_nothing(world: &ServedWorld) -> Result<()> {
    world.coordinator.docket(&["queue", "set", "slow", "--max", "2"]).await?.ok()?;
    let tasks = world.submit((0..3).map(|_| plain_spec("slow", None)).collect()).await?;
    let worker = world.worker();
    let leases = worker.lease(5).await?;
    ensure!(leases.len() == 2, "{leases:?}");
    let drain = world.coordinator.docket(&["queue", "drain", "slow", "--timeout", "80s"]);
    let finish = async {
        // It has begun once the queue is paused.
        until("a queue that is paused", async || {
            let queues = world.client().queues().await.ok()?.queues;
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
    drained?.ok()?;
    world.ensure_state(tasks[2], TaskState::Available).await?;
    ensure!(worker.lease(5).await?.is_empty(), "it is drained, and stays paused");
    world.coordinator.docket(&["queue", "unpause", "slow"]).await?.ok()?;
    ensure!(worker.lease_one().await?.task == tasks[2], "opened, it goes on");
    Ok(())
}
