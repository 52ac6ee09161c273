//! The named part of the conformance suite that runs through HTTP against `docket serve`, on both stores.
//! `DOCKET_CASE=keys,pause cargo test --workspace --test it served::` runs the cases whose names hold these words.

use anyhow::Result;
use docket_tests::{pg_cluster::PostgresCluster, served_suite::run_served_cases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_sqlite_conforms() -> Result<()> {
    run_served_cases(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_postgres_conforms() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    run_served_cases(Some(&cluster)).await
}
