//! Budgets of batches.

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::clock;
use docket_schema::{
    api::{BudgetUpdateMode, Lease, PermitRequest, PermitResponse},
    ids::BatchId,
    system::{Budget, MaxCallCost},
    task::TaskSpec,
};

use super::{CoordinatorFixture, LeasingWorker, simple_spec};

async fn request_permit(worker: &LeasingWorker, lease: &Lease, tokens: u64) -> Result<PermitResponse> {
    let call = Some(MaxCallCost { tokens, cost_nusd: Some(tokens) });
    let request = PermitRequest { provider: "scripted".to_owned(), tokens, correction: 0, call };
    Ok(worker.run_client(lease)?.request_permit(lease.run, &request).await?)
}

async fn set_token_budget(world: &CoordinatorFixture, batch: BatchId, tokens: u64) -> Result<()> {
    let budget = Budget { tokens: Some(tokens), cost_nusd: None };
    let view = world.client().set_budget(batch, budget, BudgetUpdateMode::All).await?;
    ensure!(view.budget.budget.tokens == Some(tokens), "{view:?}");
    Ok(())
}

pub(super) async fn model_calls_stay_within_the_batch_budget(world: &CoordinatorFixture) -> Result<()> {
    let batch = BatchId(clock::new_id());
    let of_batch = || TaskSpec { batch: Some(batch), ..simple_spec("default", Some(("batch", 2))) };
    let tasks = world.submit(vec![of_batch(), of_batch(), of_batch()]).await?;
    set_token_budget(world, batch, 1000).await?;
    let worker = world.new_worker();
    let leases = worker.lease(5).await?;
    let [one, two] = &leases[..] else { anyhow::bail!("the key lets two run: {leases:?}") };
    ensure!(request_permit(&worker, one, 600).await?.granted, "there is enough for that");
    let waits = request_permit(&worker, two, 600).await?;
    ensure!(!waits.granted && waits.over.is_none(), "it waits until the other call has ended: {waits:?}");
    ensure!(request_permit(&worker, two, 400).await?.granted, "there is room for that");
    let refused = request_permit(&worker, one, 1200).await?;
    ensure!(!refused.granted, "{refused:?}");
    let why = refused.over.context("a reason")?;
    ensure!(why.contains("1000 tokens"), "{why}");
    worker.finish(one).await?;
    worker.finish(two).await?;
    ensure!(worker.lease(5).await?.is_empty(), "no other task of the batch is leased");
    let other = world.submit(vec![simple_spec("default", None)]).await?;
    ensure!(worker.lease(5).await?.iter().map(|lease| lease.task).eq(other), "tasks outside it are");

    set_token_budget(world, batch, 5000).await?;
    let third = worker.lease_one().await?;
    ensure!(third.task == tasks[2], "{third:?}");
    ensure!(request_permit(&worker, &third, 1200).await?.granted, "there is enough now");
    worker.finish(&third).await
}
