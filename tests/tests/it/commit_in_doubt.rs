//! A commit whose answer was lost, and a server that crashed before it: PostgreSQL then gives the same transaction id to
//! somebody else. What the id's transaction came to says nothing of ours.

use std::{net::SocketAddr, str::FromStr as _, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::store::{NewTask, Store, postgres};
use docket_schema::ids::{TaskId, Timestamp};
use docket_tests::{
    conformance::fixture::{BASE_MANIFEST, new_blob, task_spec},
    pg_cluster::{ClusterOptions, PostgresCluster},
    system::{Signal, StoreLocation, fresh_database, wait_until},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// The server's log of changes waits in memory: a crash loses whatever no commit has forced out.
const OPTIONS: ClusterOptions = ClusterOptions {
    durable: true,
    parent_folder: None,
    initdb: &[],
    settings: &["wal_writer_delay=10s", "full_page_writes=off", "autovacuum=off"],
    environment: Vec::new(),
};

/// A way to the server that can be closed and opened.
struct DatabaseLink {
    at: SocketAddr,
    to: SocketAddr,
    open: Option<JoinHandle<()>>,
}

impl DatabaseLink {
    async fn open(to: SocketAddr) -> Result<Self> {
        let at = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?;
        let mut way = Self { at, to, open: None };
        way.reopen().await?;
        Ok(way)
    }

    async fn reopen(&mut self) -> Result<()> {
        let (listener, to) = (TcpListener::bind(self.at).await?, self.to);
        self.open = Some(tokio::spawn(async move {
            // Dropped with this task: the connections break.
            let mut passing = JoinSet::new();
            while let Ok((mut here, _)) = listener.accept().await {
                passing.spawn(async move {
                    if let Ok(mut there) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                    }
                });
            }
        }));
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.abort();
            let _ = open.await;
        }
    }
}

async fn execute_sql(raw: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(raw).await?;
    Ok(())
}

async fn query_number(raw: &mut PgConnection, sql: &str) -> Result<i64> {
    Ok(sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(raw).await?)
}

/// What lingers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DoubtfulCommit {
    /// The last statement of a transaction.
    OfATransaction,
    /// A statement that is its own transaction.
    OfItself,
}

/// `reused`: somebody else's transaction has the id and is committed when the coordinator asks.
async fn check_commit_in_doubt(commit: DoubtfulCommit, reused: bool) -> Result<()> {
    let Some(mut cluster) = PostgresCluster::start_private(OPTIONS) else { return Ok(()) };
    let StoreLocation::Postgres(url) = fresh_database(&cluster).await? else {
        anyhow::bail!("no PostgreSQL")
    };
    let port = cluster.port().context("a server of its own")?;
    let mut way = DatabaseLink::open(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let through = url.replace(&format!(":{port}/"), &format!(":{}/", way.at.port()));
    let store: Arc<dyn Store> = Arc::new(postgres::open(&through).await?);
    store.put_blobs(vec![new_blob(BASE_MANIFEST)], Timestamp(1)).await?;
    let mut raw = PgConnection::connect(&url).await?;
    // A commit that takes a submit stays where it is asked for.
    execute_sql(
        &mut raw,
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW WHEN (NEW.kind = 'TaskSubmitted') EXECUTE FUNCTION linger()",
    )
    .await?;
    // From the begin of a page of the log: what follows must fit into one, for whole pages are written by themselves.
    execute_sql(&mut raw, "SELECT pg_switch_wal()").await?;
    execute_sql(&mut raw, "CHECKPOINT").await?;
    let id = TaskId(uuid::Uuid::from_u128(7));
    let submitting = tokio::spawn({
        let store = Arc::clone(&store);
        let mut tasks = vec![NewTask { id, spec: task_spec("a"), fork: None }];
        if commit == DoubtfulCommit::OfATransaction {
            // One that waits for another is decided upon with locks.
            let mut after = task_spec("b");
            after.conditions.after = vec![id];
            tasks.push(NewTask { id: TaskId(uuid::Uuid::from_u128(8)), spec: after, fork: None });
        }
        async move { store.submit(tasks, "test".to_owned(), Timestamp(1)).await }
    });
    let asked = "SELECT coalesce(max(backend_xid::text::bigint), 0) FROM pg_stat_activity \
                 WHERE wait_event = 'PgSleep'";
    let mut xid = 0;
    while xid == 0 {
        ensure!(!submitting.is_finished(), "it did not linger: {:?}", submitting.await??);
        tokio::time::sleep(Duration::from_millis(20)).await;
        xid = query_number(&mut raw, asked).await?;
    }
    way.close().await;
    tokio::task::block_in_place(|| cluster.stop(Signal::SIGQUIT));
    tokio::task::block_in_place(|| cluster.start_stopped())?;
    let mut raw = PgConnection::connect(&url).await?;
    if reused {
        execute_sql(&mut raw, "DROP TRIGGER linger ON events").await?;
        let now = query_number(&mut raw, "SELECT pg_current_xact_id()::text::bigint").await?;
        ensure!(now > xid, "the server has not given out {xid} again: {now}");
        let status = sqlx::query_scalar::<_, Option<String>>("SELECT pg_xact_status($1::text::xid8)")
            .bind(xid.to_string())
            .fetch_one(&mut raw)
            .await?;
        ensure!(status.as_deref() == Some("committed"), "{status:?}");
    } else {
        // To drop it would be a use of the id.
        execute_sql(&mut raw, "ALTER SYSTEM SET session_replication_role = replica").await?;
        execute_sql(&mut raw, "SELECT pg_reload_conf()").await?;
        let sql = "SELECT count(*) FROM pg_settings WHERE name = 'session_replication_role' AND setting = 'replica'";
        wait_until("sessions without triggers", async || {
            let mut new = PgConnection::connect(&url).await.ok()?;
            (query_number(&mut new, sql).await.ok()? == 1).then_some(())
        })
        .await?;
    }
    way.reopen().await?;
    let answer = tokio::time::timeout(Duration::from_secs(60), submitting).await??.context("the submit")?;
    let tasks = match commit {
        DoubtfulCommit::OfATransaction => 2,
        DoubtfulCommit::OfItself => 1,
    };
    ensure!(answer.len() == tasks, "{answer:?}");
    ensure!(store.get_task(id).await?.is_some(), "an acknowledged submit is lost");
    let events = query_number(&mut raw, "SELECT count(*) FROM events WHERE kind = 'TaskSubmitted'").await?;
    ensure!(events == tasks as i64, "{events} submits");
    store.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reused_transaction_id_is_not_mistaken_for_our_commit() -> Result<()> {
    check_commit_in_doubt(DoubtfulCommit::OfATransaction, true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_lost_in_a_crash_is_repeated() -> Result<()> {
    check_commit_in_doubt(DoubtfulCommit::OfATransaction, false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_statement_submit_lost_in_a_crash_is_repeated() -> Result<()> {
    check_commit_in_doubt(DoubtfulCommit::OfItself, true).await?;
    check_commit_in_doubt(DoubtfulCommit::OfItself, false).await
}

/// A submit that is its own transaction is committed, but its reply is lost. It is recognized when it is
/// repeated, and later submits do not take the ids that it used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_continue_after_the_reply_of_a_commit_is_lost() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let StoreLocation::Postgres(url) = fresh_database(&cluster).await? else {
        anyhow::bail!("no PostgreSQL")
    };
    let server = sqlx::postgres::PgConnectOptions::from_str(&url)?;
    let port = server.get_port();
    let mut link = DatabaseLink::open(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let through = url.replace(&format!(":{port}/"), &format!(":{}/", link.at.port()));
    let store: Arc<dyn Store> = Arc::new(postgres::open(&through).await?);
    store.put_blobs(vec![new_blob(BASE_MANIFEST)], Timestamp(1)).await?;
    let submit = |number: u128| {
        let store = Arc::clone(&store);
        let tasks =
            vec![NewTask { id: TaskId(uuid::Uuid::from_u128(number)), spec: task_spec("a"), fork: None }];
        async move { store.submit(tasks, "test".to_owned(), Timestamp(1)).await }
    };
    // Reserves ids for several streams; the next submit takes one of them.
    submit(6).await?;
    let mut raw = PgConnection::connect(&url).await?;
    // A submit waits for this row while it commits.
    execute_sql(
        &mut raw,
        "CREATE TABLE gate (open boolean); INSERT INTO gate VALUES (true); \
         CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM open FROM gate FOR SHARE; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER wait_at_gate AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW WHEN (NEW.kind = 'TaskSubmitted') EXECUTE FUNCTION wait_at_gate()",
    )
    .await?;
    let mut holder = PgConnection::connect(&url).await?;
    execute_sql(&mut holder, "BEGIN").await?;
    execute_sql(&mut holder, "SELECT open FROM gate FOR UPDATE").await?;
    let doubtful = tokio::spawn(submit(7));
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple')";
    while query_number(&mut raw, waiting).await? == 0 {
        ensure!(!doubtful.is_finished(), "the submit did not wait: {:?}", doubtful.await??);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    link.close().await;
    execute_sql(&mut holder, "COMMIT").await?;
    wait_until("the commit whose reply is lost", async || {
        let committed = "SELECT count(*) FROM events WHERE kind = 'TaskSubmitted'";
        (query_number(&mut raw, committed).await.ok()? == 2).then_some(())
    })
    .await?;
    link.reopen().await?;
    let answer =
        tokio::time::timeout(Duration::from_secs(60), doubtful).await??.context("the submit in doubt")?;
    ensure!(answer.len() == 1, "{answer:?}");
    for number in 8..11 {
        submit(number).await.with_context(|| format!("submit {number}"))?;
    }
    let events = query_number(&mut raw, "SELECT count(*) FROM events WHERE kind = 'TaskSubmitted'").await?;
    ensure!(events == 5, "{events} submits");
    store.close().await;
    Ok(())
}
