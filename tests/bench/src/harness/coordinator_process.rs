//! A coordinator in a process of its own, as `docket serve` starts it: what it takes of the machine can be told from what
//! its clients take, who are this process.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use docket_worker::{
    client::Client,
    process::{ChildHandle, ChildLog, ChildSpec, start_child},
    secret::Secret,
};

use super::proc;
use crate::home::{Home, Ownership};

/// One that does not answer by then does not start here.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How often its answer is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to end.
const END_GRACE: Duration = Duration::from_secs(10);
/// Leases outlast the measurement: nothing renews them.
const LEASE_MS: &str = "3600000";
/// Of its log, what a reason quotes.
const QUOTED_CHARS_MAX: usize = 300;

/// A started coordinator. Dropping it kills it.
pub(super) struct Apart {
    child: ChildHandle,
    log: PathBuf,
    url: String,
    token: Secret,
}

impl Apart {
    /// Starts one on a free port of loopback, over a fresh SQLite database in `folder` or over `store`, and waits until
    /// it answers.
    pub(super) async fn start(folder: &Path, store: Option<&str>) -> anyhow::Result<Self> {
        let home = Home::open(Some(folder.join("home").as_path())).map_err(|failure| failure.error)?;
        let token = home.token().map_err(|failure| failure.error)?;
        let log = folder.join("coordinator.log");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            (OsString::from("DOCKET_HOME"), home.path().as_os_str().to_owned()),
            variable("DOCKET_LISTEN", "127.0.0.1:0"),
            variable("DOCKET_LEASE_MS", LEASE_MS),
        ];
        env.extend(store.map(|store| variable("DATABASE_URL", store)));
        let spec = ChildSpec {
            program: PathBuf::from("/proc/self/exe"),
            args: vec!["serve".into()],
            cwd: folder.to_owned(),
            env,
            inherit: ["PATH", "HOME", "USER", "LANG", "TMPDIR"].map(OsString::from).to_vec(),
            stdin_payload: Vec::new(),
            log: ChildLog::Append(log.clone()),
        };
        let child = start_child(spec).await.context("the coordinator does not start")?;
        let mut apart = Self { child, log, url: String::new(), token };
        apart.url = apart.ready(&home).await?;
        Ok(apart)
    }

    /// Waits until it says where it answers.
    async fn ready(&mut self, home: &Home) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            if let Ownership::Owned(owner) = home.ownership().map_err(|failure| failure.error)?
                && let Some(address) = owner.address
            {
                return Ok(address);
            }
            if let Ok(ended) = tokio::time::timeout(LOOK, self.child.wait()).await {
                bail!("the coordinator ended ({:?}): {}", ended?, self.last_words());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("the coordinator did not answer within {START_TIMEOUT:?}: {}", self.last_words());
            }
        }
    }

    /// Where it answers, as `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap_or(&self.url)
    }

    /// Its administrator's token.
    pub(super) const fn token(&self) -> &Secret {
        &self.token
    }

    /// A client of its administrator.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.url, self.token.clone())?)
    }

    /// Its resident memory, in kB.
    pub(super) fn resident_kb(&self) -> anyhow::Result<f64> {
        Ok(proc::memory(self.child.pid()).context("the coordinator's memory is not known")?.resident * 1024.0)
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
        self.child.terminate(END_GRACE).await.context("the coordinator could not be waited for")?;
        Ok(())
    }
}
