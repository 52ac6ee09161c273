//! A writer that is stuck: another process holds a lock that it needs. `/readyz` fails and says why, the log names it,
//! work goes on once the lock is gone, and a coordinator that is asked to end does so while the lock is still held.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{content::BlobRef, wire::SubmitRequest};
use docket_tests::{
    conformance::world::BASE,
    pg_cluster::Cluster,
    served::plain_spec,
    system::{Coordinator, LeaseTime, Place, Signal, fresh_database, room, seen, send, until},
};
use sqlx::Connection as _;

/// Another user of the database, in the middle of a transaction.
enum Intruder {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Intruder {
    async fn connect(coordinator: &Coordinator, place: &Place) -> Result<Self> {
        Ok(match place {
            Place::Home => {
                let file = coordinator.home().join("docket.db");
                ensure!(file.is_file(), "the home's database is not at {}", file.display());
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
                Self::Sqlite(sqlx::SqliteConnection::connect_with(&options).await?)
            }
            Place::Postgres(url) => {
                let options: sqlx::postgres::PgConnectOptions = url.parse()?;
                let options = options.application_name("intruder");
                Self::Postgres(sqlx::PgConnection::connect_with(&options).await?)
            }
        })
    }

    /// Takes a lock with which nothing can be written, and everything read.
    async fn lock(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => sqlx::raw_sql("BEGIN IMMEDIATE").execute(conn).await.map(drop)?,
            Self::Postgres(conn) => {
                let sql = "BEGIN; LOCK TABLE tasks, terms IN EXCLUSIVE MODE";
                sqlx::raw_sql(sql).execute(conn).await.map(drop)?;
            }
        }
        Ok(())
    }

    async fn unlock(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => sqlx::raw_sql("ROLLBACK").execute(conn).await.map(drop)?,
            Self::Postgres(conn) => sqlx::raw_sql("ROLLBACK").execute(conn).await.map(drop)?,
        }
        Ok(())
    }
}

/// Status and body of an open route.
async fn get(coordinator: &Coordinator, path: &str) -> Result<(u16, String)> {
    // Refused where another part of the process has installed one: that one is then used.
    drop(rustls::crypto::ring::default_provider().install_default());
    let answer = reqwest::get(format!("{}{path}", coordinator.address())).await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

async fn wait_until_unready(coordinator: &Coordinator) -> Result<String> {
    let unready = until("a coordinator that is not ready", async || {
        let (status, body) = get(coordinator, "/readyz").await.ok()?;
        // The reason is there at once; what the writer failed at comes with its first try that failed.
        (status == 503 && body.contains("no progress") && body.contains("holds a lock")).then_some(body)
    });
    unready.await.with_context(|| coordinator.tail())
}

async fn check_stuck_writer(place: Place) -> Result<()> {
    let _room = room().await;
    let mut coordinator = Coordinator::start(place.clone(), LeaseTime::Usual).await?;
    coordinator.client().put_blob(BlobRef::of(BASE), BASE.into()).await?;
    ensure!(get(&coordinator, "/readyz").await?.0 == 200, "ready at first");
    let mut intruder = Intruder::connect(&coordinator, &place).await?;
    intruder.lock().await?;
    let submit = tokio::spawn({
        let client = coordinator.client().clone();
        let request = SubmitRequest { tasks: vec![plain_spec("default", None)], ids: None };
        async move { client.submit(&request).await }
    });
    let reason = wait_until_unready(&coordinator).await?;
    ensure!(reason.contains("\"unavailable\"") && reason.contains("wait"), "{reason}");
    ensure!(get(&coordinator, "/healthz").await?.0 == 200, "the process itself answers");
    let log = seen("a line in the log", || {
        let log = coordinator.tail();
        log.contains("no progress").then_some(log)
    })
    .await?;
    ensure!(!submit.is_finished(), "what cannot be written is not acknowledged");
    if matches!(intruder, Intruder::Postgres(_)) {
        let names_holder = || {
            let log = coordinator.tail();
            (log.contains("program `intruder`") && log.contains("pg_terminate_backend")).then_some(())
        };
        seen("the session that holds the lock", names_holder).await.with_context(|| log.clone())?;
    }

    intruder.unlock().await?;
    let submitted = submit.await??;
    ensure!(submitted.tasks.len() == 1, "{submitted:?}");
    until("a coordinator that is ready again", async || {
        get(&coordinator, "/readyz").await.ok().filter(|(status, _)| *status == 200)
    })
    .await?;
    seen("that it works again", || coordinator.tail().contains("makes progress again").then_some(())).await?;

    // Asked to end while its writer is stuck, it ends, and says what it leaves behind.
    intruder.lock().await?;
    let abandoned = tokio::spawn({
        let client = coordinator.client().clone();
        let request = SubmitRequest { tasks: vec![plain_spec("default", None)], ids: None };
        async move { client.submit(&request).await }
    });
    wait_until_unready(&coordinator).await?;
    send(coordinator.pid(), Signal::SIGTERM);
    let status = coordinator.process().wait().await?;
    let log = coordinator.tail();
    ensure!(status.success(), "{status}\n{log}");
    ensure!(log.contains("left behind") || log.contains("did not close"), "{log}");
    ensure!(abandoned.await?.is_err(), "it was acknowledged");
    intruder.unlock().await?;
    coordinator.restart().await?;
    // Whether the other one was written is the database's to say: it was acknowledged to none.
    coordinator.client().task(submitted.tasks[0].id).await.context("what was acknowledged is kept")?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_writer_is_reported_recovers_and_delays_no_shutdown_on_sqlite() -> Result<()> {
    Box::pin(check_stuck_writer(Place::Home)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_writer_is_reported_recovers_and_delays_no_shutdown_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(check_stuck_writer(fresh_database(&cluster).await?)).await
}
