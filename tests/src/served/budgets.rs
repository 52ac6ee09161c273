//! Budgets of batches.

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::clock;
use docket_schema::{
    ids::BatchId,
    system::{Budget, CallCost},
    task::TaskSpec,
    wire::{Lease, PermitRequest, PermitResponse, SetBudget},
};

use super::{LeasingWorker, ServedWorld, plain_spec};

async fn ask_for(worker: &LeasingWorker, lease: &Lease, tokens: u64) -> Result<PermitResponse> {
    let call = Some(CallCost { tokens, cost_nusd: Some(tokens) });
    let request = PermitRequest { provider: "scripted".to_owned(), tokens, correction: 0, call };
    Ok(worker.run_client(lease)?.permit(lease.run, &request).await?)
}

async fn set_tokens(world: &ServedWorld, batch: BatchId, tokens: u64) -> Result<()> {
    let budget = Budget { tokens: Some(tokens), cost_nusd: None };
    let view = world.client().set_budget(batch, budget, SetBudget::All).await?;
    ensure!(view.budget.budget.tokens == Some(tokens), "{view:?}");
    Ok(())
}

pub(super) async fn calls_of_a_batch_keep_to_its_budget(world: &ServedWorld) -> Result<()> {
    let batch = BatchId(clock::new_id());
    let of_batch = || TaskSpec { batch: Some(batch), ..plain_spec("default", Some(("batch", 2))) };
    let tasks = world.submit(vec![of_batch(), of_batch(), of_batch()]).await?;
    set_tokens(world, batch, 1000).await?;
    let worker = world.worker();
    let leases = worker.lease(5).await?;
    let [one, two] = &leases[..] else { anyhow::bail!("the key lets two run: {leases:?}") };
    ensure!(ask_for(&worker, one, 600).await?.granted, "there is enough for that");
    let waits = ask_for(&worker, two, 600).await?;
    ensure!(!waits.granted && waits.over.is_none(), "it waits until the other call has ended: {waits:?}");
    ensure!(ask_for(&worker, two, 400).await?.granted, "there is room for that");
    let refused = ask_for(&worker, one, 1200).await?;
    ensure!(!refused.granted, "{refused:?}");
    let why = refused.over.context("a reason")?;
    ensure!(why.contains("1000 tokens"), "{why}");
    worker.finish(one).await?;
    worker.finish(two).await?;
    ensure!(worker.lease(5).await?.is_empty(), "no other task of the batch is leased");
    let other = world.submit(vec![plain_spec("default", None)]).await?;
    ensure!(worker.lease(5).await?.iter().map(|lease| lease.task).eq(other), "tasks outside it are");

    set_tokens(world, batch, 5000).await?;
    let third = worker.lease_one().await?;
    ensure!(third.task == tasks[2], "{third:?}");
    ensure!(ask_for(&worker, &third, 1200).await?.granted, "there is enough now");
    worker.finish(&third).await
}
