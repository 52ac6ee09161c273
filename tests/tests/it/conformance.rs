//! Both stores against the one suite.

use docket_schema::ids::{Epoch, Seq, StreamId};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        fixture::{note_event, task_spec},
        run_all,
    },
    pg_cluster::PostgresCluster,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    run_all(DatabaseKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    if let Some(cluster) = PostgresCluster::start() {
        run_all(DatabaseKind::Postgres { server: cluster.url().to_owned() }).await;
    }
}

/// The server dies as in a crash while appends and commands are under way; callers only wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms_across_a_restart() {
    let Some(mut cluster) = PostgresCluster::start() else { return };
    let kind = DatabaseKind::Postgres { server: cluster.url().to_owned() };
    let world = StoreFixture::open(TestDatabase::new(&kind, "restart").await).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let (halfway, begin) = tokio::sync::oneshot::channel();
    let writer = tokio::spawn({
        let world = world.clone();
        async move {
            let mut halfway = Some(halfway);
            let mut at = Seq(0);
            for n in 0..400 {
                if n == 100 {
                    halfway.take().expect("once").send(()).expect("somebody waits");
                }
                at = world
                    .append(lease.run, at, Epoch(1), vec![note_event(n)])
                    .await
                    .expect("appends")
                    .head
                    .seq;
                if n % 10 == 0 {
                    world.submit(task_spec("meanwhile")).await;
                }
            }
        }
    });
    begin.await.expect("halfway");
    let restarted = tokio::task::spawn_blocking(move || cluster.restart().map(|done| (done, cluster)));
    let (done, _cluster) = restarted.await.expect("no panic").expect("starts again");
    writer.await.expect("no call fails");
    assert_eq!(world.read_stream(StreamId::Run(lease.run)).await.len(), 400);
    let submitted = world.read_feed().await.iter().filter(|event| event.kind == "TaskSubmitted").count();
    assert_eq!(submitted, 41, "each once (restarted: {done})");
    world.check_consistency().await;
}
