//! A worker in a home of its own, as on another machine.

use std::{ffi::OsStr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_worker::bootstrap::Failpoint;
use tempfile::TempDir;

use super::{
    coordinator::Coordinator,
    process::Proc,
    procfs::{Signal, children_of, is_stopped, send},
    wait::seen,
};
use crate::model_server::ModelServer;

/// What a worker is to be like.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Runs at once.
    pub slots: u32,
    /// The one queue it serves; none = all.
    pub queue: Option<QueueName>,
    /// Where its run processes are to die.
    pub failpoints: Vec<Failpoint>,
    /// A run process without progress for so long hangs; none = as usual, many minutes.
    pub hang_ms: Option<u64>,
    /// Its `docket.toml`.
    pub settings: String,
    /// Its token; none = the coordinator's own, an administrator's.
    pub token: Option<String>,
    /// Variables of its environment, beside its own.
    pub env: Vec<(String, String)>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            slots: 1,
            queue: None,
            failpoints: Vec::new(),
            hang_ms: None,
            settings: String::new(),
            token: None,
            env: Vec::new(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Worker {
    process: Proc,
    home: TempDir,
}

impl Worker {
    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(coordinator: &Coordinator, options: &WorkerOptions) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-worker-").tempdir()?;
        std::fs::write(home.path().join("docket.toml"), &options.settings)?;
        let failpoints = serde_json::to_string(&options.failpoints)?;
        let hang_ms = options.hang_ms.map(|ms| ms.to_string());
        let mut env: Vec<(&str, &OsStr)> = vec![
            ("DOCKET_URL", coordinator.address().as_ref()),
            ("DOCKET_TOKEN", options.token.as_deref().unwrap_or(coordinator.token()).as_ref()),
            ("DOCKET_FAILPOINTS", failpoints.as_ref()),
            ("OPENAI_API_KEY", ModelServer::KEY.as_ref()),
            ("ANTHROPIC_API_KEY", ModelServer::KEY.as_ref()),
            // The model server of tests wants its key, wherever it listens.
            ("DOCKET_BASE_URLS", "http://127.0.0.1:*".as_ref()),
        ];
        env.extend(hang_ms.as_ref().map(|ms| ("DOCKET_HANG_MS", OsStr::new(ms))));
        env.extend(options.env.iter().map(|(name, value)| (name.as_str(), OsStr::new(value))));
        let slots = options.slots.to_string();
        let mut args = vec!["worker", "-v", "--json", "--slots", &slots];
        if let Some(queue) = &options.queue {
            args.extend(["--queues", queue.as_str()]);
        }
        let (process, _) = Proc::start("worker", home.path(), &env, &args).await?;
        let mut worker = Self { process, home };
        // A worker whose host cannot hold a sandbox ends here, and says why.
        let begun = seen("a worker that asks for work", || {
            let ended = worker.process.ended().is_some();
            (ended || worker.process.log().contains("worker started")).then_some(ended)
        });
        let ended = begun.await?;
        ensure!(!ended, "a worker ended as it began:\n{}", worker.process.tail());
        Ok(worker)
    }

    /// The process.
    pub const fn process(&mut self) -> &mut Proc {
        &mut self.process
    }

    /// Its id.
    pub const fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Its run processes.
    pub fn run_processes(&self) -> Vec<i32> {
        children_of(self.pid())
    }

    /// The workspaces of its run processes, as they lie in its scratch folder.
    pub fn workspaces(&self) -> Vec<PathBuf> {
        let folders = |of: PathBuf| std::fs::read_dir(of).into_iter().flatten().flatten().map(|at| at.path());
        let runs = folders(self.home.path().join("scratch")).flat_map(folders);
        runs.map(|run| run.join("workspace")).filter(|workspace| workspace.is_dir()).collect()
    }

    /// The run process that a failpoint has stopped, if one is.
    pub fn sleeper(&self) -> Option<i32> {
        self.run_processes().into_iter().find(|pid| is_stopped(*pid))
    }

    /// Asks it to end in order, and waits for that.
    ///
    /// # Errors
    /// It does not, or says that something went wrong.
    pub async fn drain(self) -> Result<()> {
        send(self.pid(), Signal::SIGTERM);
        self.ends_by_itself().await
    }

    /// Waits for its end, which somebody else has asked for.
    ///
    /// # Errors
    /// It does not, or says that something went wrong.
    pub async fn ends_by_itself(mut self) -> Result<()> {
        let status = self.process.wait().await?;
        status.success().then_some(()).with_context(|| format!("{status}\n{}", self.process.tail()))
    }
}
