//! A database that is away, blocked or read-only for longer than a lease, under a whole system: the run is given back or
//! lost, never counted as failed or crashed, and the task completes once the database takes writes again.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::TaskView,
    ids::{QueueName, TaskId},
    task::TaskState,
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::{ClusterOptions, PostgresCluster},
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot, fresh_database, poll_until, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
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
struct OutageFixture {
    coordinator: CoordinatorProcess,
    worker: WorkerProcess,
    task: TaskId,
    _server: ModelServer,
    _sample: SampleRepository,
}

impl OutageFixture {
    async fn new(place: StoreLocation, lease: LeaseDuration) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(place, lease).await?;
        let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let args = ["--model", "openai:away", "--queue", "template"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        let queue: QueueName = "away".parse()?;
        let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&coordinator, &options).await?;
        let model = server.model_ref(ModelProvider::OpenAi, "away");
        let task = coordinator.submit_like(&spec, &queue, model).await?;
        let stage = Self { coordinator, worker, task, _server: server, _sample: sample };
        poll_until("a command in its middle", || stage.waiting_workspace().map(|_| ()))
            .await
            .with_context(|| stage.worker_logs())?;
        Ok(stage)
    }

    fn waiting_workspace(&self) -> Option<std::path::PathBuf> {
        self.worker.workspaces().into_iter().find(|folder| folder.join("middle").exists())
    }

    fn worker_logs(&self) -> String {
        format!("worker:\n{}\ncoordinator:\n{}", self.worker.log_tail(), self.coordinator.log_tail())
    }

    /// Lets the command end: its results are to be recorded now.
    fn release_command(&self) {
        if let Some(folder) = self.waiting_workspace() {
            // A workspace that is on its way out needs no file.
            let _ = std::fs::write(folder.join("go"), "");
        }
    }

    /// Waits until the run process has given up, one way or another.
    async fn wait_for_run_process_end(&mut self) -> Result<()> {
        let log = self.worker.process();
        let ended = poll_until("the end of a run process", || {
            log.read_log().contains("run process ended").then_some(())
        });
        ended.await.with_context(|| self.worker_logs())
    }

    /// The database is as it should be: the task completes, and nothing of the outage was counted against it.
    async fn check_completes_without_counted_failures(self) -> Result<()> {
        let ended = wait_until("the end of the task", async || {
            self.release_command();
            let view = self.coordinator.client().get_task(self.task).await.ok()?;
            view.task.state.is_ended().then_some(view)
        });
        let view: TaskView = ended.await.with_context(|| self.worker_logs())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task, self.worker_logs());
        ensure!((view.task.failures, view.task.crashes) == (0, 0), "{:?}\n{}", view.task, self.worker_logs());
        ensure!(view.runs.len() == 1, "the same run continued: {:?}\n{}", view.runs, self.worker_logs());
        self.worker.drain().await?;
        self.coordinator.end_and_check().await
    }
}

/// Status and body of `/readyz`, as a probe sees them.
async fn readiness(coordinator: &CoordinatorProcess) -> Result<(u16, String)> {
    let host = coordinator.address().strip_prefix("http://").context("an address")?;
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, answer))
}

async fn start_cluster() -> Option<PostgresCluster> {
    tokio::task::block_in_place(|| PostgresCluster::start_private(ClusterOptions::default()))
}

fn database_url(place: &StoreLocation) -> Result<&str> {
    match place {
        StoreLocation::Postgres(url) => Ok(url),
        StoreLocation::HomeFolder => anyhow::bail!("no PostgreSQL"),
    }
}

async fn execute_sql(admin: &mut PgConnection, text: &'static str) -> Result<()> {
    sqlx::raw_sql(text).execute(admin).await.with_context(|| text.to_owned())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_postgres_fails_no_task() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(mut cluster) = start_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    let mut stage = Box::pin(OutageFixture::new(place, LeaseDuration::Short)).await?;
    tokio::task::block_in_place(|| cluster.stop(Signal::SIGINT));
    stage.release_command();
    stage.wait_for_run_process_end().await?;
    tokio::task::block_in_place(|| cluster.start_stopped())?;
    Box::pin(stage.check_completes_without_counted_failures()).await
}

/// The store answers that it cannot take the append, while the lease is renewed all the time: the run is given back
/// when the time of a lease has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_cannot_append_is_released_not_failed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = start_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    let mut admin = PgConnection::connect(database_url(&place)?).await?;
    let mut stage = Box::pin(OutageFixture::new(place, LeaseDuration::Short)).await?;
    execute_sql(
        &mut admin,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'others are in the way' USING ERRCODE = 'serialization_failure'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW \
         WHEN (NEW.kind = 'ToolFinished') EXECUTE FUNCTION refuse()",
    )
    .await?;
    stage.release_command();
    stage.wait_for_run_process_end().await?;
    let log = stage.worker.process().read_log();
    ensure!(log.contains("drained"), "{log}");
    execute_sql(&mut admin, "DROP TRIGGER refuse ON events").await?;
    admin.close().await?;
    Box::pin(stage.check_completes_without_counted_failures()).await
}

/// After a failover the old primary takes no writes. Sessions that began meanwhile stay read-only for ever, so docket
/// has to leave them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_postgres_is_reconnected_and_fails_no_task() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = start_cluster().await else { return Ok(()) };
    let place = fresh_database(&cluster).await?;
    // This session began before, and so may write.
    let mut admin = PgConnection::connect(database_url(&place)?).await?;
    let mut stage = Box::pin(OutageFixture::new(place, LeaseDuration::Short)).await?;
    ensure!(readiness(&stage.coordinator).await?.0 == 200);
    execute_sql(&mut admin, "ALTER ROLE docket SET default_transaction_read_only = on").await?;
    execute_sql(
        &mut admin,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE pid <> pg_backend_pid() AND application_name LIKE 'docket%'",
    )
    .await?;
    wait_until("a coordinator that is not ready", async || {
        let (status, body) = readiness(&stage.coordinator).await.ok()?;
        (status == 503 && body.contains("read-only")).then_some(())
    })
    .await
    .with_context(|| stage.worker_logs())?;
    stage.release_command();
    stage.wait_for_run_process_end().await?;
    let said = stage.coordinator.process().read_log();
    ensure!(!said.contains("internal error"), "{said}");
    execute_sql(&mut admin, "ALTER ROLE docket RESET default_transaction_read_only").await?;
    admin.close().await?;
    wait_until("a coordinator that is ready", async || {
        (readiness(&stage.coordinator).await.ok()?.0 == 200).then_some(())
    })
    .await
    .with_context(|| stage.worker_logs())?;
    Box::pin(stage.check_completes_without_counted_failures()).await
}

async fn lock_for_writing(database: &Path) -> Result<SqliteConnection> {
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(docket_tests::system::WAIT_MAX);
    let mut other = SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await?;
    Ok(other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_sqlite_file_fails_no_task() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let mut stage = Box::pin(OutageFixture::new(StoreLocation::HomeFolder, LeaseDuration::Short)).await?;
    let mut other = lock_for_writing(&stage.coordinator.home().join("docket.db")).await?;
    stage.release_command();
    stage.wait_for_run_process_end().await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
    other.close().await?;
    Box::pin(stage.check_completes_without_counted_failures()).await
}
