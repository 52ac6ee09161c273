//! A client, whoever answers it: a coordinator elsewhere, the home's owner, or one started here for
//! the duration of the command.
//!
//! Reading commands start one without taking the home's lock and without background work, so that any
//! number of them may run at once. Writing commands own the home while they last and say so without
//! an address; others wait for the moment that takes.

use std::time::{Duration, Instant};

use docket_worker::{
    client::{CoordinatorClient, home_address},
    secret::Secret,
};

use crate::{
    connect::{
        local_coordinator::{ListenOptions, LocalCoordinator},
        resolve,
    },
    context::CliContext,
    history::lineage::HistorySource,
    home::{HomeLock, HomeOwnership, LOCK_LINGER_MAX},
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

mod archived_store;
pub(crate) use archived_store::download_archive_file as fetch_archived;

/// How long to wait for an owner that starts, or for a writing command to be done.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often to look meanwhile.
const OWNER_POLL: Duration = Duration::from_millis(10);

/// What a command wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Look.
    Read,
    /// Change something.
    Write,
}

/// See the module.
pub(crate) struct Coordinator {
    /// The way to the coordinator.
    pub(crate) client: CoordinatorClient,
    local: Option<LocalCoordinator>,
    /// Released after the coordinator has ended.
    lock: Option<HomeLock>,
    /// Removed last.
    scratch: Option<tempfile::TempDir>,
}

/// The token that the environment gives, if it does.
pub(crate) fn token_from_env() -> Option<Secret> {
    std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new)
}

impl Coordinator {
    /// Finds or starts a coordinator.
    pub(crate) async fn connect(cx: &CliContext, need: AccessMode) -> CliResult<Self> {
        if let Some(url) = &cx.url {
            return Self::connect_remote(cx, url);
        }
        let (until, gone_until) = (Instant::now() + OWNER_WAIT_MAX, Instant::now() + LOCK_LINGER_MAX);
        loop {
            match cx.home.ownership()? {
                HomeOwnership::Owned(owner) if owner.is_gone() && Instant::now() < gone_until => {}
                HomeOwnership::Owned(owner) => {
                    if let Some(address) = owner.address {
                        // Another process may serve the home before the command is done: `follow` takes hours.
                        let address = home_address(&cx.home.lock_path()).unwrap_or(address);
                        // A given token may have fewer rights; it has those on this machine as well.
                        return match token_from_env() {
                            Some(token) => Self::connect_to(&address, token),
                            None => Self::connect_to(&address, cx.home.load_or_create_token()?),
                        };
                    }
                    if need == AccessMode::Read {
                        return Self::start_local(cx, None).await;
                    }
                }
                HomeOwnership::Starting => {}
                HomeOwnership::Free => match need {
                    AccessMode::Read => return Self::start_local(cx, None).await,
                    AccessMode::Write => {
                        if let Some(mut lock) = cx.home.try_lock()? {
                            lock.announce_short_command()?;
                            return Self::start_local(cx, Some(lock)).await;
                        }
                    }
                },
            }
            if Instant::now() >= until {
                let message = format!(
                    "another docket holds {} and does not answer; end it, or name another home with --home",
                    cx.home.path().display()
                );
                return Err(CliError::new(ExitKind::Unreachable, message));
            }
            // A lock file cannot be waited for together with what is written into it.
            tokio::time::sleep(OWNER_POLL).await;
        }
    }

    /// As [`Access::open`] for looking at what `id` names: where that is archived, at a store of its own that its
    /// file was unpacked into, which goes with this.
    pub(crate) async fn connect_for_reading(cx: &CliContext, id: &str) -> CliResult<Self> {
        let access = Self::connect(cx, AccessMode::Read).await?;
        match resolve::resolve_archived(&access.client, id).await {
            Ok(None) => Ok(access),
            Ok(Some(stream)) => {
                let aside = archived_store::serve_archived_run(cx, &access.client, &stream).await;
                access.close().await?;
                aside
            }
            Err(failure) => {
                access.close().await?;
                Err(failure)
            }
        }
    }

    /// Whether nobody else serves it: then nothing goes on by itself.
    pub(crate) const fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Where histories are read fastest.
    pub(crate) fn history_source(&self) -> HistorySource {
        match &self.local {
            Some(local) => HistorySource::Store(local.store()),
            None => HistorySource::Client(self.client.clone()),
        }
    }

    /// Ends what was started here; what was done is durable already.
    pub(crate) async fn close(self) -> CliResult<()> {
        if let Some(local) = self.local {
            local.stop().await;
        }
        drop(self.lock);
        drop(self.scratch);
        Ok(())
    }

    /// At the store that the settings name, whoever serves the home: to read what is there. A file that is not there is
    /// not made.
    pub(crate) async fn serve_configured_store(cx: &CliContext) -> CliResult<Self> {
        let file = cx.config.store.as_deref().and_then(|store| store.strip_prefix("sqlite:"));
        if let Some(file) = file.map(|file| std::path::Path::new(file.trim_start_matches("//")))
            && !file.is_file()
        {
            let message = format!("there is no database {}; check --store, or DATABASE_URL", file.display());
            return Err(CliError::new(ExitKind::Usage, message));
        }
        Self::start_local(cx, None).await
    }

    async fn start_local(cx: &CliContext, lock: Option<HomeLock>) -> CliResult<Self> {
        let local = LocalCoordinator::start(cx, ListenOptions::ephemeral()).await?;
        let client = CoordinatorClient::new(local.address(), cx.home.load_or_create_token()?)?;
        Ok(Self { client, local: Some(local), lock, scratch: None })
    }

    fn connect_to(address: &str, token: Secret) -> CliResult<Self> {
        Ok(Self { client: CoordinatorClient::new(address, token)?, local: None, lock: None, scratch: None })
    }

    fn connect_remote(cx: &CliContext, url: &str) -> CliResult<Self> {
        let token = token_from_env().ok_or(()).or_else(|()| {
            // A coordinator of this very home may be named by its address too.
            match cx.home.ownership() {
                Ok(HomeOwnership::Owned(owner))
                    if owner.address.as_deref() == Some(url.trim_end_matches('/')) =>
                {
                    cx.home.load_or_create_token()
                }
                Ok(_) | Err(_) => Err(CliError::new(
                    ExitKind::Refused,
                    "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home",
                )),
            }
        })?;
        CoordinatorClient::with_ca(url, token, cx.ca_certificates()?.as_deref())
            .map(|client| Self { client, local: None, lock: None, scratch: None })
            .fail_as(ExitKind::Usage)
    }
}
