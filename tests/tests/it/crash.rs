//! kill -9 at every event boundary, of everybody, on both stores (invariants 3, 4 and 6).
//!
//! A worker's events reach the log in appends, and an append is one transaction: of the events in it
//! the log has all or none. So the boundaries *between* events that a crash can fall on are those
//! between appends, and "before an append" and "after it was acknowledged" are its only two sides;
//! between acknowledged and begun-next lies only what the run process itself does. A kill before and
//! after each append of the undisturbed run therefore covers every event boundary; that appends are
//! indeed what the design says is checked first.
//!
//! A coordinator has one side more, between its commit and its answer: the driver that lives sends the append
//! again, and it must not be written twice. That is swept over one append of each kind.
//!
//! The places are named failpoints (seq, side, epoch) that the run process obeys; nothing depends on
//! time but the lease of one second, which is waited for.

mod delegated;
mod full_disk;
mod reference_run;
mod roles;
mod scenario;
mod sleeper;

use anyhow::Result;
use docket_tests::pg_cluster::PostgresCluster;
use full_disk::check_full_disk;
use reference_run::reference_run;
use roles::sweep_roles;
use scenario::{BoundaryCrash, Victim, all_crashes, sweep, unanswered_crashes};
use sleeper::{WakeTime, check_database_restarts, check_sleeper_wakes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reference_run_has_the_designed_append_boundaries() -> Result<()> {
    let story = reference_run().await?;
    anyhow::ensure!(story.told_at > 1 && story.appends.len() == 26, "{story:?}");
    Ok(())
}

async fn sweep_boundaries(victim: Victim) -> Result<Vec<BoundaryCrash>> {
    Ok(all_crashes(reference_run().await?, victim))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_process_killed_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(sweep_boundaries(Victim::Run).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_killed_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(sweep_boundaries(Victim::Supervisor).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_killed_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(sweep_boundaries(Victim::Coordinator).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_killed_between_commit_and_reply_on_sqlite() -> Result<()> {
    let crashes = unanswered_crashes(reference_run().await?);
    anyhow::ensure!(crashes.len() >= 6, "every kind of append: {crashes:?}");
    Box::pin(sweep(crashes, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_killed_between_commit_and_reply_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(sweep(unanswered_crashes(reference_run().await?), Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_process_killed_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(sweep(sweep_boundaries(Victim::Run).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_killed_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(sweep(sweep_boundaries(Victim::Supervisor).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_killed_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(sweep(sweep_boundaries(Victim::Coordinator).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_engine_run_ends_the_same_after_any_kill_on_sqlite() -> Result<()> {
    Box::pin(sweep_roles(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_engine_run_ends_the_same_after_any_kill_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(sweep_roles(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_children_ends_the_same_after_any_kill_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep_react(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_children_ends_the_same_after_any_kill_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep_react(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_with_a_child_ends_the_same_after_any_kill_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep_review(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_with_a_child_ends_the_same_after_any_kill_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep_review(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_with_a_child_ends_the_same_after_any_kill_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep_other_engines(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_with_a_child_ends_the_same_after_any_kill_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep_other_engines(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_worker_cannot_append_after_takeover_on_sqlite() -> Result<()> {
    Box::pin(check_sleeper_wakes(WakeTime::InTheMiddle, None)).await?;
    Box::pin(check_sleeper_wakes(WakeTime::AfterTheEnd, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_worker_cannot_append_after_takeover_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_sleeper_wakes(WakeTime::InTheMiddle, Some(&cluster))).await?;
    Box::pin(check_sleeper_wakes(WakeTime::AfterTheEnd, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continues_after_a_postgres_restart() -> Result<()> {
    let Some(mut cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_database_restarts(&mut cluster)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_loses_nothing_and_the_run_continues_when_space_is_freed() -> Result<()> {
    Box::pin(check_full_disk()).await
}
