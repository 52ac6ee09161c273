//! A worker with its own home, as on another machine.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_worker::bootstrap::Failpoint;
use tempfile::TempDir;

use super::{
    binary::docket_binary,
    coordinator::CoordinatorProcess,
    process::{RunningProcess, TestProgram},
    procfs::{Signal, child_pids, is_stopped, send_signal},
    wait::poll_until,
};
use crate::model_server::ModelServer;

/// Options of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Number of concurrent runs.
    pub slots: u32,
    /// The only queue it serves; `None` is all.
    pub queue: Option<QueueName>,
    /// Where its run processes die.
    pub failpoints: Vec<Failpoint>,
    /// How long a run process may make no progress before it counts as hung; `None` is the default
    /// of many minutes.
    pub hang_ms: Option<u64>,
    /// Whether it runs the checks of a run's base, as a worker does by default.
    pub base_checks: bool,
    /// Its `docket.toml`.
    pub settings: String,
    /// Its token; `None` is the coordinator's own administrator token.
    pub token: Option<String>,
    /// Additional variables of its environment.
    pub env: Vec<(String, String)>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            slots: 1,
            queue: None,
            failpoints: Vec::new(),
            hang_ms: None,
            base_checks: false,
            settings: String::new(),
            token: None,
            env: Vec::new(),
        }
    }
}

/// The location of a worker, and its coordinator.
#[derive(Debug, Clone)]
pub struct WorkerConnection {
    /// The coordinator's address, as the worker reaches it.
    pub url: String,
    /// The token it presents.
    pub token: String,
    /// Its network namespace; `None` is this process's own.
    pub namespace: Option<PathBuf>,
}

/// A worker process; see the module.
#[derive(Debug)]
pub struct WorkerProcess {
    process: RunningProcess,
    home: TempDir,
    connection: WorkerConnection,
    options: WorkerOptions,
}

impl WorkerProcess {
    /// Starts a worker.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start(coordinator: &CoordinatorProcess, options: &WorkerOptions) -> Result<Self> {
        let token = options.token.as_deref().unwrap_or(coordinator.token()).to_owned();
        let post = WorkerConnection { url: coordinator.address().to_owned(), token, namespace: None };
        Self::start_at(post, options.clone()).await
    }

    /// Starts a worker at another location.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_at(post: WorkerConnection, options: WorkerOptions) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-worker-").tempdir()?;
        std::fs::write(home.path().join("docket.toml"), &options.settings)?;
        let process = launch(home.path(), &post, &options).await?;
        Ok(Self { process, home, connection: post, options })
    }

    /// Kills it if it is running, and starts it again in its home.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill().await?;
        self.process = launch(self.home.path(), &self.connection, &self.options).await?;
        Ok(())
    }

    pub const fn process(&mut self) -> &mut RunningProcess {
        &mut self.process
    }

    pub const fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Returns its run processes.
    pub fn run_processes(&self) -> Vec<i32> {
        child_pids(self.pid())
    }

    /// Returns the workspaces of its run processes, in its scratch folder.
    pub fn workspaces(&self) -> Vec<PathBuf> {
        let folders = |of: PathBuf| std::fs::read_dir(of).into_iter().flatten().flatten().map(|at| at.path());
        let runs = folders(self.home.path().join("scratch")).flat_map(folders);
        runs.map(|run| run.join("workspace")).filter(|workspace| workspace.is_dir()).collect()
    }

    /// Returns the run process stopped by a failpoint, if there is one.
    pub fn suspended_run(&self) -> Option<i32> {
        self.run_processes().into_iter().find(|pid| is_stopped(*pid))
    }

    /// Asks it to end in order, and waits for its end.
    ///
    /// # Errors
    /// Returns an error if it does not end, or reports a failure.
    pub async fn drain(self) -> Result<()> {
        send_signal(self.pid(), Signal::SIGTERM);
        self.wait_for_exit().await
    }

    /// Waits for its end after another process has asked for it.
    ///
    /// # Errors
    /// Returns an error if it does not end, or reports a failure.
    pub async fn wait_for_exit(mut self) -> Result<()> {
        let status = self.process.wait().await?;
        status.success().then_some(()).with_context(|| format!("{status}\n{}", self.process.log_tail()))
    }
}

async fn launch(home: &Path, post: &WorkerConnection, options: &WorkerOptions) -> Result<RunningProcess> {
    let failpoints = serde_json::to_string(&options.failpoints)?;
    let hang_ms = options.hang_ms.map(|ms| ms.to_string());
    let mut env: Vec<(&str, &OsStr)> = vec![
        ("DOCKET_URL", post.url.as_ref()),
        ("DOCKET_TOKEN", post.token.as_ref()),
        ("DOCKET_FAILPOINTS", failpoints.as_ref()),
        ("OPENAI_API_KEY", ModelServer::DEFAULT_KEY.as_ref()),
        ("ANTHROPIC_API_KEY", ModelServer::DEFAULT_KEY.as_ref()),
        // The tests' model server wants its key, wherever it listens.
        ("DOCKET_BASE_URLS", "http://127.0.0.1:*".as_ref()),
    ];
    // Base checks are an event of every run, so suites that count events or checks opt in.
    if !options.base_checks {
        env.push(("DOCKET_BASE_CHECKS", "false".as_ref()));
    }
    env.extend(hang_ms.as_ref().map(|ms| ("DOCKET_HANG_MS", OsStr::new(ms))));
    env.extend(options.env.iter().map(|(name, value)| (name.as_str(), OsStr::new(value))));
    let slots = options.slots.to_string();
    let mut args = vec!["worker", "-v", "--json", "--slots", &slots];
    if let Some(queue) = &options.queue {
        args.extend(["--queues", queue.as_str()]);
    }
    let enter = post.namespace.as_ref().map(|at| format!("--net={}", at.display()));
    let binary = docket_binary().to_string_lossy();
    let mut tool = TestProgram::Docket;
    if let Some(enter) = &enter {
        // It becomes docket: the process is the same.
        args.splice(0..0, [enter.as_str(), "--", &binary]);
        tool = TestProgram::Nsenter;
    }
    // A worker restarted in a home has logged this before.
    let begun_before = std::fs::read(home.join("worker.log")).map_or(0, |log| log.len());
    let (mut process, _) = RunningProcess::start_program(tool, "worker", home, &env, &args).await?;
    // A worker whose host cannot provide a sandbox ends here, and says why.
    let begun = poll_until("a worker that asks for work", || {
        let ended = process.try_exit_status().is_some();
        let log = process.read_log();
        let log = log.get(begun_before..).unwrap_or_default();
        (ended || log.contains("worker started")).then_some(ended)
    });
    let ended = begun.await?;
    ensure!(!ended, "a worker ended as it began:\n{}", process.log_tail());
    Ok(process)
}
