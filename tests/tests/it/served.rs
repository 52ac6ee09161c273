//! The named part of the conformance suite that runs through HTTP against `docket serve`, on both stores.
//! `DOCKET_CASE=keys,pause cargo test --workspace --test it served::` runs the cases whose names hold these words.

use anyhow::Result;
use docket_tests::{pg_cluster::Cluster, served::run_served};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() -> Result<()> {
    run_served(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    run_served(Some(&cluster)).await
}
