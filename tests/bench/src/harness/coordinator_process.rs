//! A coordinator in a separate process, started with `docket serve`, so that its resource usage can be
//! distinguished from that of its clients, which are in this process.

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

/// Time limit for the start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval for its reply.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit for the shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Leases outlast the benchmark, because nothing renews them.
const LEASE_MS: &str = "3600000";

/// A running coordinator, killed when dropped.
pub(crate) struct CoordinatorProcess {
    child: ChildHandle,
    log: PathBuf,
    url: String,
    token: Secret,
}

/// Creates the home of a coordinator in `folder`, writable by no other user.
pub(crate) fn create_home(folder: &Path) -> anyhow::Result<PathBuf> {
    let home = folder.join("home");
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&home);
    made.with_context(|| format!("{} cannot be made", home.display()))?;
    Ok(home)
}

impl CoordinatorProcess {
    /// Starts a coordinator on a free port of loopback, over the SQLite database of its home or over `store`,
    /// and waits until it responds.
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

    /// Returns its address as `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap_or(&self.url)
    }

    /// Returns its administrator token.
    pub(crate) const fn token(&self) -> &Secret {
        &self.token
    }

    /// Returns a client with the administrator token.
    pub(crate) fn client(&self) -> anyhow::Result<CoordinatorClient> {
        Ok(CoordinatorClient::new(&self.url, self.token.clone())?)
    }

    /// Returns its resident memory, in kB.
    pub(crate) fn resident_kb(&self) -> anyhow::Result<f64> {
        Ok(process_stats::read_memory(self.child.pid())
            .context("the coordinator's memory is unknown")?
            .resident
            * 1024.0)
    }

    /// Returns the end of its log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Ends it in order.
    pub(crate) async fn shut_down(mut self) -> anyhow::Result<()> {
        self.child.terminate(SHUTDOWN_GRACE).await.context("the coordinator could not be waited for")?;
        Ok(())
    }
}

/// Waits until it announces its address.
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

/// Returns the address from the output of `docket serve --json`.
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
