//! A real supervisor for the measurements: `docket worker` as a child process with a home of its own.

use std::{
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use docket_sandbox::TOOL_HOMES;
use docket_worker::process::{ChildHandle, ChildLog, ChildSpec, start_child};

use super::{
    docket_binary::{Site, log_tail},
    places::Served,
};

/// A worker that has not reported by then does not start here.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often its report is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to end its runs.
const END_GRACE: Duration = Duration::from_secs(5);

/// A started supervisor. Dropping it kills it.
pub(crate) struct WorkerProcess {
    child: ChildHandle,
    log: PathBuf,
}

impl WorkerProcess {
    /// Starts a supervisor with `slots` slots for `served`, and waits until it asks for work.
    pub(crate) async fn start(site: &Site, served: &Served, slots: u32) -> anyhow::Result<Self> {
        Self::named("bench", site, served, slots).await
    }

    /// The same, one of several: each has a folder of its own.
    pub(crate) async fn named(name: &str, site: &Site, served: &Served, slots: u32) -> anyhow::Result<Self> {
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
                .chain(TOOL_HOMES)
                .map(OsString::from)
                .collect(),
            stdin_payload: Vec::new(),
            log: ChildLog::Append(log.clone()),
        };
        let child = start_child(spec).await.context("the worker does not start")?;
        let mut worker = Self { child, log };
        worker.ready(name, served).await?;
        Ok(worker)
    }

    /// Waits until the coordinator has heard of it.
    async fn ready(&mut self, name: &str, served: &Served) -> anyhow::Result<()> {
        let (store, started) = (served.running.handle().store(), Instant::now());
        loop {
            let (_, workers) = store.status(docket_schema::ids::Timestamp(0)).await?;
            if workers.iter().any(|worker| worker.name == name) {
                return Ok(());
            }
            let ended = tokio::time::timeout(LOOK, self.child.wait()).await;
            if let Ok(ended) = ended {
                bail!("the worker ended ({:?}): {}", ended?, self.last_words());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("the worker asked for no work within {START_TIMEOUT:?}: {}", self.last_words());
            }
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// The end of its log, for a reason.
    pub(crate) fn last_words(&self) -> String {
        log_tail(&self.log)
    }

    /// Ends it in order.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.child.terminate(END_GRACE).await.context("the worker could not be waited for")?;
        Ok(())
    }
}
