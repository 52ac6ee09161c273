//! kill -9 at every event boundary, of everybody, on both stores (invariants 3, 4 and 6).
//!
//! A worker's events reach the log in appends, and an append is one transaction: of the events in it
//! the log has all or none. So the boundaries *between* events that a crash can fall on are those
//! between appends, and "before an append" and "after it was acknowledged" are its only two sides;
//! between acknowledged and begun-next lies only what the run process itself does. A kill before and
//! after each append of the undisturbed run therefore covers every event boundary; that appends are
//! indeed what the design says is checked first.
//!
//! The places are named failpoints (seq, side, epoch) that the run process obeys; nothing depends on
//! time but the lease of one second, which is waited for.

mod scenario;
mod story;

use anyhow::Result;
use docket_tests::pg_cluster::Cluster;
use scenario::{Crash, Victim, all, sweep};
use story::story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_is_what_the_design_says() -> Result<()> {
    let story = story().await?;
    anyhow::ensure!(story.told_at > 1);
    println!("{story:#?}");
    Ok(())
}

/// The boundaries to try: all of them with `DOCKET_SWEEP=full`, else every `step`-th, from another
/// one for each store, so that together they meet more of them.
async fn boundaries(victim: Victim, step: usize, first: usize) -> Result<Vec<Crash>> {
    let all = all(story().await?, victim);
    let full = std::env::var_os("DOCKET_SWEEP").is_some_and(|sweep| sweep == "full");
    let (step, first) = if full { (1, 0) } else { (step, first) };
    Ok(all.into_iter().skip(first).step_by(step).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_process_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Run, 1, 0).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supervisor_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Supervisor, 1, 0).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_at_every_boundary_on_sqlite() -> Result<()> {
    Box::pin(sweep(boundaries(Victim::Coordinator, 1, 0).await?, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_process_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Run, 1, 0).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supervisor_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Supervisor, 1, 0).await?, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_dies_at_every_boundary_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(sweep(boundaries(Victim::Coordinator, 1, 0).await?, Some(&cluster))).await
}
