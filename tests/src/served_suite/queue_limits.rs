//! Limits of queues.

use anyhow::{Context as _, Result, ensure};
use docket_schema::api::SetQueueRequest;

use super::{CoordinatorFixture, simple_spec};

async fn set_running_max(world: &CoordinatorFixture, queue: &str, running_max: u32) -> Result<()> {
    let request = SetQueueRequest { paused: None, running_max: Some(running_max) };
    let view = world.client().set_queue(&queue.parse()?, &request).await?;
    let expected = (running_max > 0).then_some(running_max);
    ensure!(view.settings.running_max == expected, "{view:?}");
    Ok(())
}

pub(super) async fn queue_limit_is_enforced(world: &CoordinatorFixture) -> Result<()> {
    set_running_max(world, "slow", 2).await?;
    world.submit((0..6).map(|_| simple_spec("slow", None)).collect()).await?;
    let worker = world.new_worker();
    let mut leases = worker.lease(6).await?;
    ensure!(leases.len() == 2, "{} run", leases.len());
    ensure!(worker.lease(6).await?.is_empty(), "the queue is full");
    let other = world.submit(vec![simple_spec("other", None)]).await?;
    ensure!(worker.lease(6).await?.iter().map(|lease| lease.task).eq(other), "other queues go on");
    worker.finish(&leases.pop().context("a lease")?).await?;
    ensure!(worker.lease(6).await?.len() == 1, "one place is free again");
    set_running_max(world, "slow", 0).await?;
    ensure!(worker.lease(6).await?.len() == 3, "without a limit the rest runs");
    Ok(())
}

pub(super) async fn queue_limits_and_keys_combine(world: &CoordinatorFixture) -> Result<()> {
    set_running_max(world, "left", 2).await?;
    set_running_max(world, "right", 1).await?;
    let mut tasks = Vec::new();
    for nth in 0..12 {
        let key = if nth % 3 == 0 { "a" } else { "b" };
        tasks.push(simple_spec(if nth % 2 == 0 { "left" } else { "right" }, Some((key, 2))));
    }
    let count = tasks.len();
    world.submit(tasks).await?;
    let worker = world.new_worker();
    let mut done = 0;
    while done < count {
        let leases = worker.lease(12).await?;
        let in_queue = |queue: &str| leases.iter().filter(|lease| lease.spec.queue.as_str() == queue).count();
        let (left, right) = (in_queue("left"), in_queue("right"));
        ensure!(left <= 2 && right <= 1, "{left} in one queue and {right} in the other");
        ensure!(!leases.is_empty(), "nothing is leased, and {done} of {count} are done");
        for lease in &leases {
            worker.finish(lease).await?;
        }
        done += leases.len();
    }
    Ok(())
}
