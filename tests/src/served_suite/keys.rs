//! Concurrency keys.

use anyhow::{Result, ensure};
use docket_schema::api::Lease;
use futures_util::future::try_join_all;

use super::{CoordinatorFixture, LeasingWorker, simple_spec};

pub(super) async fn key_limit_applies_across_workers(world: &CoordinatorFixture) -> Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(simple_spec("default", Some(("branch/main", 1))));
        tasks.push(simple_spec("default", Some(("licence", 3))));
    }
    let ids = world.submit(tasks).await?;
    let mut done = 0;
    while done < ids.len() {
        let workers: Vec<LeasingWorker> = (0..4).map(|_| world.new_worker()).collect();
        let leases = try_join_all(workers.iter().map(|worker| worker.lease(5))).await?;
        let count_key = |key: &str| {
            let has_key = |lease: &&Lease| {
                lease.spec.conditions.concurrency.as_ref().is_some_and(|concurrency| concurrency.key == key)
            };
            leases.iter().flatten().filter(has_key).count()
        };
        let (main, licence) = (count_key("branch/main"), count_key("licence"));
        ensure!(main <= 1 && licence <= 3, "{main} and {licence} at a time");
        ensure!(main + licence > 0, "nothing is leased, and {done} of {} are done", ids.len());
        for (worker, leases) in workers.iter().zip(&leases) {
            let renewed = worker.heartbeat(&leases.iter().collect::<Vec<_>>()).await?;
            ensure!(renewed.lost.is_empty(), "{renewed:?}");
            for lease in leases {
                worker.finish(lease).await?;
                done += 1;
            }
        }
    }
    Ok(())
}

pub(super) async fn full_key_does_not_block_other_tasks(world: &CoordinatorFixture) -> Result<()> {
    let busy = (0..20).map(|_| simple_spec("default", Some(("busy", 1)))).collect();
    world.submit(busy).await?;
    let (one, two) = (world.new_worker(), world.new_worker());
    let holder = one.lease_one().await?;
    let free = world.submit(vec![simple_spec("default", None)]).await?;
    let got = two.lease(5).await?;
    ensure!(got.iter().map(|lease| lease.task).eq(free), "not one of the twenty before it: {got:?}");
    ensure!(two.lease(5).await?.is_empty(), "the key is full");
    one.finish(&holder).await?;
    ensure!(two.lease(5).await?.len() == 1, "the key is free again");
    Ok(())
}
