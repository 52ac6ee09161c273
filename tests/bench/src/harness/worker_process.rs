//! A real supervisor for benchmarks: `docket worker` as a child process with its own home.

use std::{
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use docket_sandbox::TOOL_HOME_VARIABLES;
use docket_worker::process::{ChildHandle, ChildLog, ChildSpec, start_child};

use super::{
    bench_folder::ServedCoordinator,
    docket_binary::{GroupSite, log_tail},
};

/// Time limit for the worker's first report.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval for its report.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit for ending its runs.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A running supervisor, killed when dropped.
pub(crate) struct WorkerProcess {
    child: ChildHandle,
    log: PathBuf,
}

impl WorkerProcess {
    /// Starts a supervisor with `slots` slots for `served`, and waits until it requests work.
    pub(crate) async fn start(
        site: &GroupSite,
        served: &ServedCoordinator,
        slots: u32,
    ) -> anyhow::Result<Self> {
        Self::start_named("bench", site, served, slots).await
    }

    /// The same for one of several, each with its own folder.
    pub(crate) async fn start_named(
        name: &str,
        site: &GroupSite,
        served: &ServedCoordinator,
        slots: u32,
    ) -> anyhow::Result<Self> {
        let log = site.folder.join("worker.log");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let spec = ChildSpec {
            program: site.docket.clone(),
            args: vec![
                "worker".into(),
                "--slots".into(),
                slots.to_string().into(),
                "--name".into(),
                name.into(),
            ],
            cwd: site.folder.clone(),
            env: vec![
                variable("DOCKET_URL", &served.running.url()),
                variable("DOCKET_TOKEN", &served.token),
                (OsString::from("DOCKET_HOME"), site.folder.join("worker-home").into_os_string()),
            ],
            inherit: ["PATH", "HOME", "LANG", "TMPDIR"]
                .into_iter()
                .chain(TOOL_HOME_VARIABLES)
                .map(OsString::from)
                .collect(),
            stdin_payload: Vec::new(),
            log: ChildLog::Append(log.clone()),
        };
        let child = start_child(spec).await.context("the worker does not start")?;
        let mut worker = Self { child, log };
        worker.wait_until_ready(name, served).await?;
        Ok(worker)
    }

    /// Waits until the coordinator has received its report.
    async fn wait_until_ready(&mut self, name: &str, served: &ServedCoordinator) -> anyhow::Result<()> {
        let (store, started) = (served.running.handle().store(), Instant::now());
        loop {
            let (_, workers) = store.read_status(docket_schema::ids::Timestamp(0)).await?;
            if workers.iter().any(|worker| worker.name == name) {
                return Ok(());
            }
            let ended = tokio::time::timeout(POLL_INTERVAL, self.child.wait()).await;
            if let Ok(ended) = ended {
                bail!("the worker ended ({:?}): {}", ended?, self.log_tail());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("the worker requested no work within {START_TIMEOUT:?}: {}", self.log_tail());
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Returns the end of its log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Ends it in order.
    pub(crate) async fn shut_down(mut self) -> anyhow::Result<()> {
        self.child.terminate(SHUTDOWN_GRACE).await.context("the worker could not be waited for")?;
        Ok(())
    }
}
