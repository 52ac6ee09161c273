//! A writer that is stuck: another process holds a lock that it needs. `/readyz` fails and says why, the log names it,
//! work goes on once the lock is gone, and a coordinator that is asked to end does so while the lock is still held.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::SubmitRequest, content::BlobRef};
use docket_tests::{
    conformance::fixture::BASE_MANIFEST,
    pg_cluster::PostgresCluster,
    served_suite::simple_spec,
    system::{
        CoordinatorProcess, LeaseDuration, Signal, StoreLocation, acquire_scenario_slot, fresh_database,
        poll_until, send_signal, wait_until,
    },
};
use sqlx::Connection as _;

/// Another user of the database, in the middle of a transaction.
enum LockHolder {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl LockHolder {
    async fn connect(coordinator: &CoordinatorProcess, place: &StoreLocation) -> Result<Self> {
        Ok(match place {
            StoreLocation::HomeFolder => {
                let file = coordinator.home().join("docket.db");
                ensure!(file.is_file(), "the home's database is not at {}", file.display());
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
                Self::Sqlite(sqlx::SqliteConnection::connect_with(&options).await?)
            }
            StoreLocation::Postgres(url) => {
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
async fn get_route(coordinator: &CoordinatorProcess, path: &str) -> Result<(u16, String)> {
    // Refused where another part of the process has installed one: that one is then used.
    drop(rustls::crypto::ring::default_provider().install_default());
    let answer = reqwest::get(format!("{}{path}", coordinator.address())).await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

async fn wait_until_unready(coordinator: &CoordinatorProcess) -> Result<String> {
    let unready = wait_until("a coordinator that is not ready", async || {
        let (status, body) = get_route(coordinator, "/readyz").await.ok()?;
        // The reason is there at once; what the writer failed at comes with its first try that failed.
        (status == 503 && body.contains("no progress") && body.contains("holds a lock")).then_some(body)
    });
    unready.await.with_context(|| coordinator.log_tail())
}

async fn check_stuck_writer(place: StoreLocation) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let mut coordinator = CoordinatorProcess::start(place.clone(), LeaseDuration::Usual).await?;
    coordinator.client().put_blob(BlobRef::for_bytes(BASE_MANIFEST), BASE_MANIFEST.into()).await?;
    ensure!(get_route(&coordinator, "/readyz").await?.0 == 200, "ready at first");
    let mut intruder = LockHolder::connect(&coordinator, &place).await?;
    intruder.lock().await?;
    let submit = tokio::spawn({
        let client = coordinator.client().clone();
        let request = SubmitRequest { tasks: vec![simple_spec("default", None)], ids: None };
        async move { client.submit(&request).await }
    });
    let reason = wait_until_unready(&coordinator).await?;
    ensure!(reason.contains("\"unavailable\"") && reason.contains("wait"), "{reason}");
    ensure!(get_route(&coordinator, "/healthz").await?.0 == 200, "the process itself answers");
    let log = poll_until("a line in the log", || {
        let log = coordinator.log_tail();
        log.contains("no progress").then_some(log)
    })
    .await?;
    ensure!(!submit.is_finished(), "what cannot be written is not acknowledged");
    if matches!(intruder, LockHolder::Postgres(_)) {
        let names_holder = || {
            let log = coordinator.log_tail();
            (log.contains("program `intruder`") && log.contains("pg_terminate_backend")).then_some(())
        };
        poll_until("the session that holds the lock", names_holder).await.with_context(|| log.clone())?;
    }

    intruder.unlock().await?;
    let submitted = submit.await??;
    ensure!(submitted.tasks.len() == 1, "{submitted:?}");
    wait_until("a coordinator that is ready again", async || {
        get_route(&coordinator, "/readyz").await.ok().filter(|(status, _)| *status == 200)
    })
    .await?;
    poll_until("that it works again", || {
        coordinator.log_tail().contains("makes progress again").then_some(())
    })
    .await?;

    // Asked to end while its writer is stuck, it ends, and says what it leaves behind.
    intruder.lock().await?;
    let abandoned = tokio::spawn({
        let client = coordinator.client().clone();
        let request = SubmitRequest { tasks: vec![simple_spec("default", None)], ids: None };
        async move { client.submit(&request).await }
    });
    wait_until_unready(&coordinator).await?;
    send_signal(coordinator.pid(), Signal::SIGTERM);
    let status = coordinator.process().wait().await?;
    let log = coordinator.log_tail();
    ensure!(status.success(), "{status}\n{log}");
    ensure!(log.contains("is abandoned") || log.contains("did not close"), "{log}");
    ensure!(abandoned.await?.is_err(), "it was acknowledged");
    intruder.unlock().await?;
    coordinator.restart().await?;
    // Whether the other one was written is the database's to say: it was acknowledged to none.
    coordinator.client().get_task(submitted.tasks[0].id).await.context("what was acknowledged is kept")?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_writer_is_reported_recovers_and_does_not_delay_shutdown_on_sqlite() -> Result<()> {
    Box::pin(check_stuck_writer(StoreLocation::HomeFolder)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_writer_is_reported_recovers_and_does_not_delay_shutdown_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_stuck_writer(fresh_database(&cluster).await?)).await
}
