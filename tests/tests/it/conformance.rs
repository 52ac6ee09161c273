//! Both stores against the one suite.

use docket_tests::{
    conformance::{Kind, run_all},
    pg_cluster::Cluster,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    run_all(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    if let Some(cluster) = Cluster::start() {
        run_all(Kind::Postgres { server: cluster.url().to_owned() }).await;
    }
}
