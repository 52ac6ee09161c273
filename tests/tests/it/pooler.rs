//! The store through PgBouncer in transaction mode: the same suite, and the pooler's death.

use docket_coordinator::store::{StoreError, postgres};
use docket_schema::ids::{Epoch, Seq, StreamId};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        fixture::{note_event, task_spec},
        run_all,
    },
    pg_cluster::PostgresCluster,
    pooler::PgBouncer,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms_through_a_pooler() {
    let Some(cluster) = PostgresCluster::start() else { return };
    let Some(pooler) = PgBouncer::start(&cluster) else { return };
    run_all(DatabaseKind::Pooled { server: cluster.url().to_owned(), pooler: pooler.url() }).await;
}

/// Killed with transactions in hand, one of which may have been committed: callers only wait, and nothing is
/// written twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_death_loses_and_duplicates_nothing() {
    let Some(cluster) = PostgresCluster::start() else { return };
    let Some(mut pooler) = PgBouncer::start(&cluster) else { return };
    let kind = DatabaseKind::Pooled { server: cluster.url().to_owned(), pooler: pooler.url() };
    let world = StoreFixture::open(TestDatabase::new(&kind, "pooler_dies").await).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let (at, mut reached) = tokio::sync::mpsc::channel(8);
    let writer = tokio::spawn({
        let world = world.clone();
        async move {
            let mut head = Seq(0);
            for n in 0..300 {
                if n % 60 == 30 {
                    at.send(n).await.expect("somebody waits");
                }
                head = world
                    .append(lease.run, head, Epoch(1), vec![note_event(n)])
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
    let mut deaths = 0;
    while reached.recv().await.is_some() {
        tokio::task::block_in_place(|| pooler.restart()).expect("starts again");
        deaths += 1;
    }
    writer.await.expect("no call fails");
    assert_eq!(deaths, 5);
    assert_eq!(world.read_stream(StreamId::Run(lease.run)).await.len(), 300);
    let submitted = world.read_feed().await.iter().filter(|event| event.kind == "TaskSubmitted").count();
    assert_eq!(submitted, 31, "each once");
    world.check_consistency().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeclared_pooler_is_detected() {
    let Some(cluster) = PostgresCluster::start() else { return };
    let Some(pooler) = PgBouncer::start(&cluster) else { return };
    let refused = postgres::open(&pooler.unmarked_url()).await.err().expect("no session");
    assert!(
        matches!(&refused, StoreError::Schema { what } if what.contains("?pooler=transaction")),
        "{refused:?}"
    );
    let other = format!("{}?pooler=session", pooler.unmarked_url());
    let refused = postgres::open(&other).await.err().expect("no such mode");
    assert!(
        matches!(&refused, StoreError::Schema { what } if what.contains("pooler=transaction")),
        "{refused:?}"
    );
}
