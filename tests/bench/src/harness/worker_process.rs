//! A real supervisor for the measurements: a child process of this same binary, `docket worker`, with a
//! home of its own, and what is known of its runs from outside.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use docket_coordinator::server::Running;
use docket_worker::{
    process::{ChildHandle, ChildLog, ChildSpec, start_child},
    sandbox::TOOL_HOMES,
};

/// A worker that has not reported by then does not start here.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often its report is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to end its runs.
const END_GRACE: Duration = Duration::from_secs(5);
/// Of its log, what a reason quotes.
const QUOTED_CHARS_MAX: usize = 300;

/// A started supervisor. Dropping it kills it.
pub(super) struct Worker {
    child: ChildHandle,
    log: PathBuf,
}

impl Worker {
    /// Starts a supervisor with `slots` slots for `running`, and waits until it asks for work.
    pub(super) async fn start(
        running: &Running,
        token: &str,
        folder: &Path,
        slots: u32,
    ) -> anyhow::Result<Self> {
        Self::named("bench", running, token, folder, slots).await
    }

    /// The same, one of several: each has a folder of its own.
    pub(super) async fn named(
        name: &str,
        running: &Running,
        token: &str,
        folder: &Path,
        slots: u32,
    ) -> anyhow::Result<Self> {
        let log = folder.join("worker.log");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let spec = ChildSpec {
            program: PathBuf::from("/proc/self/exe"),
            args: vec![
                "worker".into(),
                "--slots".into(),
                slots.to_string().into(),
                "--name".into(),
                name.into(),
            ],
            cwd: folder.to_owned(),
            env: vec![
                variable("DOCKET_URL", &running.url()),
                variable("DOCKET_TOKEN", token),
                (OsString::from("DOCKET_HOME"), folder.join("worker-home").into_os_string()),
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
        worker.ready(name, running).await?;
        Ok(worker)
    }

    /// Waits until the coordinator has heard of it.
    async fn ready(&mut self, name: &str, running: &Running) -> anyhow::Result<()> {
        let (store, started) = (running.handle().store(), Instant::now());
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
    pub(super) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// The end of its log, for a reason.
    pub(super) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let skip = flat.chars().count().saturating_sub(QUOTED_CHARS_MAX);
        flat.chars().skip(skip).collect()
    }

    /// Ends it in order.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.child.terminate(END_GRACE).await.context("the worker could not be waited for")?;
        Ok(())
    }
}
