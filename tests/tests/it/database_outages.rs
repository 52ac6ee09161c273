//! A database that is away, blocked or read-only for longer than a lease, under a whole system: the run is given back or
//! lost, never counted as failed or crashed, and the task completes once the database takes writes again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TaskId},
    task::TaskState,
    wire::TaskView,
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::{Cluster, ClusterOptions},
    system::{
        Coordinator, LeaseTime, Place, Sample, Signal, Worker, WorkerOptions, fresh_database, room, seen,
        until,
    },
};
use docket_worker::model::{Provider, ScriptedModel};
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The second turn waits in its middle until a file is there; its results are then to be recorded.
const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "touch middle; until [ -e go ]; do sleep 0.02; done; rm -f go middle; echo whole >> two.txt" }
[[turns]]
text = "Done."
"#;

/// A system with one task, whose run is in the middle of its second turn.
struct Stage {
    coordinator: Coordinator,
    worker: Worker,
    task: TaskId,
    _server: ModelServer,
    _sample: Sample,
}

impl Stage {
    async fn set(place: Place, lease: LeaseTime) -> Result<Self> {
        let coordinator = Coordinator::start(place, lease).await?;
        let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
        let sample = Sample::new(&[("a.txt", "a\n")])?;
        let args = ["--model", "openai:away", "--queue", "template"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        let queue: QueueName = "away".parse()?;
        let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
        let worker = Worker::start(&coordinator, &options).await?;
        let model = server.model(Provider::OpenAi, "away");
        let task = coordinator.submit_like(&spec, &queue, model).await?;
        let stage = Self { coordinator, worker, task, _server: server, _sample: sample };
        seen("a command in its middle", || stage.waiting_workspace().map(|_| ()))
            .await
            .with_context(|| stage.logs())?;
        Ok(stage)
    }

    fn waiting_workspace(&self) -> Option<std::path::PathBuf> {
        self.worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
    }

    fn logs(&self) -> String {
        format!("worker:\n{}\ncoordinator:\n{}", self.worker.tail(), self.coordinator.tail())
    }

    /// Lets the command end: its results are to be recorded now.
    fn let_go(&self) {
        if let Some(folder) = self.waiting_workspace() {
            // A workspace that is on its way out needs no file.
            let _ = std::fs::write(folder.join("go"), "");
        }
    }

    /// Waits until the run process has given up, one way or another.
    async fn run_process_ends(&mut self) -> Result<()> {
        let log = self.worker.process();
        let ended =
            seen("the end of a run process", || log.log().contains("run process ended").then_some(()));
        ended.await.with_context(|| self.logs())
    }

    /// The database is as it should be: the task completes, and nothing of the outage was counted against it.
    async fn completes_uncounted(self) -> Result<()> {
        let ended = until("the end of the task", async || {
            self.let_go();
            let view = self.coordinator.client().task(self.task).await.ok()?;
            view.task.state.is_ended().then_some(view)
        });
        let view: TaskView = ended.await.with_context(|| self.logs())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task, self.logs());
        ensure!((view.task.failures, view.task.crashes) == (0, 0), "{:?}\n{}", view.task, self.logs());
        ensure!(view.runs.len() == 1, "the same run continued: {:?}\n{}", view.runs, self.logs());
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

/// Status and body of `/readyz`, as a probe sees them.
async fn readiness(coordinator: &Coordinator) -> Result<(u16, String)> {
    let host = coordinator.address().strip_prefix("http://").context("an address")?;
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, answer))
}

async fn own_cluster() -> Option<Cluster> {
    tokio::task::block_in_place(|| Cluster::start_own(ClusterOptions::default()))
}

fn url(place: &Place) -> Result<&str> {
    match place {
        Place::Postgres(url) => Ok(url),
        Place::Home => anyhow::bail!("no PostgreSQL"),
    }
}

async fn sql(admin: &mut PgConnection, text: &'static str) -> Result<()> {
    sqlx::raw_sql(text).execute(admin).await.with_context(|| text.to_owned())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_postgres_fails_no_task() -> Result<()> {
    let _room = room().await;
    let Some(mut cluster) = own_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    let mut stage = Box::pin(Stage::set(place, LeaseTime::Short)).await?;
    tokio::task::block_in_place(|| cluster.stop(Signal::SIGINT));
    stage.let_go();
    stage.run_process_ends().await?;
    tokio::task::block_in_place(|| cluster.start_again())?;
    Box::pin(stage.completes_uncounted()).await
}

/// The store answers that it cannot take the append, while the lease is renewed all the time: the run is given back
/// when the time of a lease has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_cannot_record_is_given_back_and_not_failed() -> Result<()> {
    let _room = room().await;
    let Some(cluster) = own_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    let mut admin = PgConnection::connect(url(&place)?).await?;
    let mut stage = Box::pin(Stage::set(place, LeaseTime::Short)).await?;
    sql(
        &mut admin,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'others are in the way' USING ERRCODE = 'serialization_failure'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW \
         WHEN (NEW.kind = 'ToolFinished') EXECUTE FUNCTION refuse()",
    )
    .await?;
    stage.let_go();
    stage.run_process_ends().await?;
    let log = stage.worker.process().log();
    ensure!(log.contains("drained"), "{log}");
    sql(&mut admin, "DROP TRIGGER refuse ON events").await?;
    admin.close().await?;
    Box::pin(stage.completes_uncounted()).await
}

/// After a failover the old primary takes no writes. Sessions that began meanwhile stay read-only for ever, so docket
/// has to leave them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_postgres_is_left_and_fails_no_task() -> Result<()> {
    let _room = room().await;
    let Some(cluster) = own_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    // This session began before, and so may write.
    let mut admin = PgConnection::connect(url(&place)?).await?;
    let mut stage = Box::pin(Stage::set(place, LeaseTime::Short)).await?;
    ensure!(readiness(&stage.coordinator).await?.0 == 200);
    sql(&mut admin, "ALTER ROLE docket SET default_transaction_read_only = on").await?;
    sql(
        &mut admin,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND application_name LIKE 'docket%'",
    )
    .await?;
    until("a coordinator that is not ready", async || {
        let (status, body) = readiness(&stage.coordinator).await.ok()?;
        (status == 503 && body.contains("read-only")).then_some(())
    })
    .await
    .with_context(|| stage.logs())?;
    stage.let_go();
    stage.run_process_ends().await?;
    let said = stage.coordinator.process().log();
    ensure!(!said.contains("a fault of docket"), "{said}");
    sql(&mut admin, "ALTER ROLE docket RESET default_transaction_read_only").await?;
    admin.close().await?;
    until("a coordinator that is ready", async || {
        (readiness(&stage.coordinator).await.ok()?.0 == 200).then_some(())
    })
    .await
    .with_context(|| stage.logs())?;
    Box::pin(stage.completes_uncounted()).await
}

async fn lock_for_writing(database: &Path) -> Result<SqliteConnection> {
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(database).busy_timeout(docket_tests::system::LONG);
    let mut other = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await?;
    Ok(other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_that_another_process_locks_fails_no_task() -> Result<()> {
    let _room = room().await;
    let mut stage = Box::pin(Stage::set(Place::Home, LeaseTime::Short)).await?;
    let mut other = lock_for_writing(&stage.coordinator.home().join("docket.db")).await?;
    stage.let_go();
    stage.run_process_ends().await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
    other.close().await?;
    Box::pin(stage.completes_uncounted()).await
}
