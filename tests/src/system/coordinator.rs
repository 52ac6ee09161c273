//! A coordinator with its own home that can be killed and restarted at the same address.

use std::{
    ffi::OsStr,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{SubmitRequest, TaskView},
    ids::{QueueName, RunId, TaskId},
    message::ModelRef,
    task::TaskSpec,
};
use docket_worker::{
    client::{CoordinatorClient, HistoryScope},
    secret::Secret,
};
use tempfile::TempDir;

use super::{
    process::{FinishedProcess, RunningProcess, TestProgram, run_program},
    run_history::RunHistory,
    wait::wait_until,
};

/// How long a lease lasts without a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseDuration {
    /// One and a half seconds (heartbeats at a third of it): for tests that wait for takeovers.
    Short,
    /// Four seconds: for tests that wait for one takeover and count repeated work, on a machine that may
    /// stall for a second.
    Patient,
    /// The usual half minute: for tests in which no lease may be lost on a machine that stalls.
    Usual,
}

impl LeaseDuration {
    /// Returns the duration in milliseconds.
    pub const fn as_ms(self) -> u64 {
        match self {
            Self::Short => 1500,
            Self::Patient => 4000,
            Self::Usual => 30_000,
        }
    }
}

/// Location of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// The home's own SQLite database.
    HomeFolder,
    /// A PostgreSQL database, initially empty.
    Postgres(String),
}

/// A coordinator process; see the module.
#[derive(Debug)]
pub struct CoordinatorProcess {
    process: RunningProcess,
    home: PathBuf,
    // `None` if the caller created the folder.
    _folder: Option<TempDir>,
    location: StoreLocation,
    lease: LeaseDuration,
    address: String,
    token: String,
    client: CoordinatorClient,
}

impl CoordinatorProcess {
    /// Starts a coordinator in a fresh home.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start(place: StoreLocation, lease: LeaseDuration) -> Result<Self> {
        Self::start_with_env(place, lease, &[]).await
    }

    /// Starts a coordinator in a fresh home that kills itself after it commits the append with event `seq`
    /// of a run under epoch 1, before it replies. After a restart, it does not.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_with_crash_before_reply(
        place: StoreLocation,
        lease: LeaseDuration,
        seq: u64,
    ) -> Result<Self> {
        Self::start_with_env(place, lease, &[("DOCKET_ANSWERS_LOST", &format!("{seq}@1"))]).await
    }

    /// Starts a coordinator in a fresh home, with additional environment variables.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_with_env(
        place: StoreLocation,
        lease: LeaseDuration,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        let env: Vec<(&str, &OsStr)> = env.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
        let mut coordinator = Self::start_with(folder.path(), place, lease, &env).await?;
        coordinator._folder = Some(folder);
        Ok(coordinator)
    }

    /// Starts a coordinator in a folder that the caller keeps.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_in(home: &Path, place: StoreLocation, lease: LeaseDuration) -> Result<Self> {
        Self::start_with(home, place, lease, &[]).await
    }

    /// Starts a coordinator in a folder that the caller keeps, with additional environment
    /// variables.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_with(
        home: &Path,
        place: StoreLocation,
        lease: LeaseDuration,
        env: &[(&str, &OsStr)],
    ) -> Result<Self> {
        let port = free_port();
        let (process, address) = start_serve(home, &place, lease, port, env).await?;
        let token =
            std::fs::read_to_string(home.join("token")).context("a home has a token")?.trim().to_owned();
        let secret = Secret::new(&token).context("a token")?;
        let client = CoordinatorClient::new(&address, secret)?;
        Ok(Self {
            process,
            home: home.to_owned(),
            _folder: None,
            location: place,
            lease,
            address,
            token,
            client,
        })
    }

    /// Ends it if it is running, and starts it again with the same home, store and port.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill().await?;
        let port: u16 =
            self.address.rsplit(':').next().and_then(|port| port.parse().ok()).context("a port")?;
        let (process, address) = start_serve(&self.home, &self.location, self.lease, port, &[]).await?;
        ensure!(address == self.address, "{address} is not {}", self.address);
        self.process = process;
        Ok(())
    }

    pub const fn process(&mut self) -> &mut RunningProcess {
        &mut self.process
    }

    pub const fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Returns its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns its token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns its home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns a client with an administrator's token.
    pub const fn client(&self) -> &CoordinatorClient {
        &self.client
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Runs `docket ARGS` like a user on this machine, through the home.
    ///
    /// # Errors
    /// Returns an error if it cannot be started or does not end.
    pub async fn run_docket<A: AsRef<OsStr>>(&self, args: &[A]) -> Result<FinishedProcess> {
        run_docket_in(&self.home, &self.location, args).await
    }

    /// Ends the coordinator in order (SIGTERM) and checks log and tables as a user would: `docket
    /// verify` and `docket db rebuild` must find nothing.
    ///
    /// # Errors
    /// Returns what they found.
    pub async fn end_and_check(mut self) -> Result<()> {
        super::send_signal(self.process.pid(), super::Signal::SIGTERM);
        let status = self.process.wait().await?;
        ensure!(status.success(), "a coordinator that was asked to end: {status}\n{}", self.log_tail());
        let verified = run_docket_in(&self.home, &self.location, &["verify", "--json"]).await?;
        ensure!(verified.success(), "docket verify: {} {}", verified.stdout, verified.stderr);
        let rebuilt = run_docket_in(&self.home, &self.location, &["db", "rebuild", "--json"]).await?;
        ensure!(rebuilt.success(), "docket db rebuild: {} {}", rebuilt.stdout, rebuilt.stderr);
        Ok(())
    }

    /// Submits a task like `spec` to `queue`, for `model`.
    ///
    /// # Errors
    /// Returns an error if it is refused.
    pub async fn submit_like(&self, spec: &TaskSpec, queue: &QueueName, model: ModelRef) -> Result<TaskId> {
        let spec = TaskSpec { queue: queue.clone(), model, ..spec.clone() };
        let answer = self.client.submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?;
        Ok(answer.tasks.first().context("a task")?.id)
    }

    /// Waits until a task has ended, is blocked or was given up.
    ///
    /// # Errors
    /// Returns an error if it has not within the limit.
    pub async fn wait_until_ended(&self, task: TaskId) -> Result<TaskView> {
        let ended = wait_until("the end of a task", async || {
            let view = self.client.get_task(task).await.ok()?;
            view.task.state.is_ended().then_some(view)
        });
        ended.await.with_context(|| self.log_tail())
    }

    /// Returns a run's whole history.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub async fn run_history(&self, run: RunId) -> Result<RunHistory> {
        RunHistory::new(self.client.all_events(run, HistoryScope::WithAncestors).await?)
    }
}

async fn run_docket_in<A: AsRef<OsStr>>(
    home: &Path,
    place: &StoreLocation,
    args: &[A],
) -> Result<FinishedProcess> {
    let mut env: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", home.as_os_str())];
    if let StoreLocation::Postgres(url) = place {
        env.push(("DATABASE_URL", url.as_ref()));
    }
    run_program(TestProgram::Docket, home, &env, args).await
}

async fn start_serve(
    home: &Path,
    place: &StoreLocation,
    lease: LeaseDuration,
    port: u16,
    more: &[(&str, &OsStr)],
) -> Result<(RunningProcess, String)> {
    let listen = format!("127.0.0.1:{port}");
    let lease_ms = lease.as_ms().to_string();
    let mut env: Vec<(&str, &OsStr)> = vec![("DOCKET_LEASE_MS", lease_ms.as_ref())];
    env.extend(more);
    if let StoreLocation::Postgres(url) = place {
        env.push(("DATABASE_URL", url.as_ref()));
    }
    let (process, said) =
        RunningProcess::start_docket("serve", home, &env, &["serve", "-v", "--json", "--listen", &listen])
            .await?;
    let said: serde_json::Value = serde_json::from_str(&said).context("the output of `serve --json`")?;
    let address = said["address"].as_str().context("its address")?.to_owned();
    Ok((process, address))
}

/// Returns a free port below the range for outgoing connections, so that a killed coordinator finds
/// it free again.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).expect("below COUNT");
    loop {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
