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
mod roles;
mod scenario;
mod sleeper;
mod story;

use anyhow::Result;
use docket_tests::pg_cluster::Cluster;
use full_disk::full_disk;
use roles::sweep_roles;
use scenario::{Crash, Victim, all, sweep, unanswered};
use sleeper::{Wakes, database_restarts, sleeper_wakes};
use story::story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_is_what_the_design_says() -> Result<()> {
    let story = story().await?;
    anyhow::ensure!(story.told_at > 1 && story.appends.len() == 26, "{story:?}");
    Ok(())
}

async fn boundaries(victim: Victim) -> Result<Vec<Crash>> {
    Ok(all(story().await?, victim))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_process_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Run).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supervisor_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Supervisor).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Coordinator).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_between_commit_and_answer_on_sqlite() -> Result<()> {
    let crashes = unanswered(story().await?);
    anyhow::ensure!(crashes.len() >= 6, "every kind of append: {crashes:?}");
    Box::pin(sweep(crashes, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_between_commit_and_answer_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(unanswered(story().await?), Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_process_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Run).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supervisor_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Supervisor).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Coordinator).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_an_engine_with_roles_ends_as_undisturbed_whoever_dies_on_sqlite() -> Result<()> {
    Box::pin(sweep_roles(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_an_engine_with_roles_ends_as_undisturbed_whoever_dies_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep_roles(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_children_ends_as_undisturbed_whoever_dies_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_children_ends_as_undisturbed_whoever_dies_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_with_a_child_ends_as_undisturbed_whoever_dies_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep_in_turns(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_with_a_child_ends_as_undisturbed_whoever_dies_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep_in_turns(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_a_child_ends_as_undisturbed_whoever_dies_on_sqlite() -> Result<()> {
    Box::pin(delegated::sweep_others(None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_a_child_ends_as_undisturbed_whoever_dies_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(delegated::sweep_others(Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_that_wakes_after_takeover_gets_nothing_into_the_log() -> Result<()> {
    Box::pin(sleeper_wakes(Wakes::InTheMiddle, None)).await?;
    Box::pin(sleeper_wakes(Wakes::AfterTheEnd, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_that_wakes_after_takeover_gets_nothing_into_the_log_of_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sleeper_wakes(Wakes::InTheMiddle, Some(&cluster))).await?;
    Box::pin(sleeper_wakes(Wakes::AfterTheEnd, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_when_postgres_is_restarted_in_its_middle() -> Result<()> {
    let Some(mut cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(database_restarts(&mut cluster)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room() -> Result<()> {
    Box::pin(full_disk()).await
}
