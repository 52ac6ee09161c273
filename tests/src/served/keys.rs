//! Concurrency keys.

use anyhow::{Result, ensure};
use docket_schema::wire::Lease;
use futures_util::future::try_join_all;

use super::{LeasingWorker, ServedWorld, plain_spec};

pub(super) async fn a_key_runs_as_many_as_it_may_however_many_lease(world: &ServedWorld) -> Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(plain_spec("default", Some(("branch/main", 1))));
        tasks.push(plain_spec("default", Some(("licence", 3))));
    }
    let ids = world.submit(tasks).await?;
    let mut done = 0;
    while done < ids.len() {
        let workers: Vec<LeasingWorker> = (0..4).map(|_| world.worker()).collect();
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

pub(super) async fn a_full_key_keeps_back_no_other_task(world: &ServedWorld) -> Result<()> {
    let busy = (0..20).map(|_| plain_spec("default", Some(("busy", 1)))).collect();
    world.submit(busy).await?;
    let (one, two) = (world.worker(), world.worker());
    let holder = one.lease_one().await?;
    let free = world.submit(vec![plain_spec("default", None)]).await?;
    let got = two.lease(5).await?;
    ensure!(got.iter().map(|lease| lease.task).eq(free), "not one of the twenty before it: {got:?}");
    ensure!(two.lease(5).await?.is_empty(), "the key is full");
    one.finish(&holder).await?;
    ensure!(two.lease(5).await?.len() == 1, "the key is free again");
    Ok(())
}
