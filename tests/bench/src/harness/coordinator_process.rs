//! A coordinator in a process of its own, as `docket serve` starts it: what it takes of the machine can be told from what
//! its clients take, who are this process.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use docket_worker::{
    client::CoordinatorClient,
    process::{ChildHandle, ChildLog, ChildSpec, start_child},
    secret::Secret,
};
use serde_json::Value;

use super::{
    docket_binary::{GroupSite, log_tail},
    process_stats,
};

/// One that does not answer by then does not start here.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How often its answer is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long it may take to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Leases outlast the measurement: nothing renews them.
const LEASE_MS: &str = "3600000";

/// A started coordinator. Dropping it kills it.
pub(crate) struct CoordinatorProcess {
    child: ChildHandle,
    log: PathBuf,
    url: String,
    token: Secret,
}

/// The home of a coordinator in `folder`, which nobody else may write to.
pub(crate) fn create_home(folder: &Path) -> anyhow::Result<PathBuf> {
    let home = folder.join("home");
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&home);
    made.with_context(|| format!("{} cannot be made", home.display()))?;
    Ok(home)
}

impl CoordinatorProcess {
    /// Starts one on a free port of loopback, over the SQLite database of its home or over `store`, and waits until it
    /// answers.
    pub(crate) async fn start(site: &GroupSite, store: Option<&str>) -> anyhow::Result<Self> {
        let home = create_home(&site.folder)?;
        let log = site.folder.join("coordinator.log");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            (OsString::from("DOCKET_HOME"), home.clone().into_os_string()),
            variable("DOCKET_LISTEN", "127.0.0.1:0"),
            variable("DOCKET_LEASE_MS", LEASE_MS),
        ];
        env.extend(store.map(|store| variable("DATABASE_URL", store)));
        let spec = ChildSpec {
            program: site.docket.clone(),
            args: vec!["serve".into(), "--json".into()],
            cwd: site.folder.clone(),
            env,
            inherit: ["PATH", "HOME", "USER", "LANG", "TMPDIR"].map(OsString::from).to_vec(),
            stdin_payload: Vec::new(),
            log: ChildLog::Append(log.clone()),
        };
        let mut child = start_child(spec).await.context("the coordinator does not start")?;
        let url = wait_for_address(&mut child, &log).await?;
        let token = fs::read_to_string(home.join("token")).context("the coordinator's home has no token")?;
        let token = Secret::new(&token).context("the coordinator's token is empty")?;
        Ok(Self { child, log, url, token })
    }

    /// Where it answers, as `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap_or(&self.url)
    }

    /// Its administrator's token.
    pub(crate) const fn token(&self) -> &Secret {
        &self.token
    }

    /// A client of its administrator.
    pub(crate) fn client(&self) -> anyhow::Result<CoordinatorClient> {
        Ok(CoordinatorClient::new(&self.url, self.token.clone())?)
    }

    /// Its resident memory, in kB.
    pub(crate) fn resident_kb(&self) -> anyhow::Result<f64> {
        Ok(process_stats::read_memory(self.child.pid())
            .context("the coordinator's memory is not known")?
            .resident
            * 1024.0)
    }

    /// The end of its log, for a reason.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Ends it in order.
    pub(crate) async fn shut_down(mut self) -> anyhow::Result<()> {
        self.child.terminate(SHUTDOWN_GRACE).await.context("the coordinator could not be waited for")?;
        Ok(())
    }
}

/// Waits until it says where it answers.
async fn wait_for_address(child: &mut ChildHandle, log: &Path) -> anyhow::Result<String> {
    let started = Instant::now();
    loop {
        if let Some(address) = announced_address(&fs::read_to_string(log).unwrap_or_default()) {
            return Ok(address);
        }
        if let Ok(ended) = tokio::time::timeout(POLL_INTERVAL, child.wait()).await {
            bail!("the coordinator ended ({:?}): {}", ended?, log_tail(log));
        }
        if started.elapsed() > START_TIMEOUT {
            bail!("the coordinator did not answer within {START_TIMEOUT:?}: {}", log_tail(log));
        }
    }
}

/// The address in what `docket serve --json` says once it answers.
fn announced_address(log: &str) -> Option<String> {
    let rows = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.filter_map(|row| row["address"].as_str().map(str::to_owned)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_found_in_complete_lines_only() {
        let line = r#"{"address":"http://127.0.0.1:7117","pid":7}"#;
        let log = format!("note: something else\n{{\"error\":\"no\"}}\n{line}\n");
        assert_eq!(announced_address(&log).as_deref(), Some("http://127.0.0.1:7117"));
        assert_eq!(announced_address(&line[..line.len() - 1]), None);
    }
}
