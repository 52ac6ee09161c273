//! Connects to a coordinator: a remote one, the process that owns the home, or one started here for the
//! duration of the command.
//!
//! Read-only commands start one without taking the home's lock and without background jobs, so any number of
//! them may run at once. Writing commands own the home while they run and announce that without an address;
//! other commands wait for them to finish.

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

/// How long to wait for an owner to start, or for a writing command to finish.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(20);
const OWNER_POLL: Duration = Duration::from_millis(10);

/// What a command needs the coordinator for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Read-only access.
    Read,
    /// Write access.
    Write,
}

/// A connection to a coordinator, and what was started to get it.
pub(crate) struct Coordinator {
    pub(crate) client: CoordinatorClient,
    local: Option<LocalCoordinator>,
    /// Released after the coordinator has ended.
    lock: Option<HomeLock>,
    /// Removed last.
    scratch: Option<tempfile::TempDir>,
}

/// Returns the token from the environment, if set.
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
                        // Another process may serve the home before the command finishes: `follow` can take
                        // hours.
                        let address = home_address(&cx.home.lock_path()).unwrap_or(address);
                        // An explicit token may have fewer rights, and keeps them on this machine.
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
                    "another docket process holds {} and does not respond; stop it, or use another home with --home",
                    cx.home.path().display()
                );
                return Err(CliError::new(ExitKind::Unreachable, message));
            }
            // A lock cannot be awaited together with the address that its holder writes.
            tokio::time::sleep(OWNER_POLL).await;
        }
    }

    /// Like [`Coordinator::connect`], for reading what `id` names. If it is archived, its file is unpacked into
    /// a temporary store that is removed with the returned value.
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

    /// Whether no other process serves the store, so nothing progresses in the background.
    pub(crate) const fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// The fastest source for histories.
    pub(crate) fn history_source(&self) -> HistorySource {
        match &self.local {
            Some(local) => HistorySource::Store(local.store()),
            None => HistorySource::Client(self.client.clone()),
        }
    }

    /// Shuts down what was started here. Everything done is already durable.
    pub(crate) async fn close(self) -> CliResult<()> {
        if let Some(local) = self.local {
            local.stop().await;
        }
        drop(self.lock);
        drop(self.scratch);
        Ok(())
    }

    /// Serves the store from the settings for reading, even if another process serves the home. A missing
    /// database file is not created.
    pub(crate) async fn serve_configured_store(cx: &CliContext) -> CliResult<Self> {
        let file = cx.config.store.as_deref().and_then(|store| store.strip_prefix("sqlite:"));
        if let Some(file) = file.map(|file| std::path::Path::new(file.trim_start_matches("//")))
            && !file.is_file()
        {
            let message = format!("no database at {}; check --store or DATABASE_URL", file.display());
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
            // The address given may be that of this home's own coordinator.
            match cx.home.ownership() {
                Ok(HomeOwnership::Owned(owner))
                    if owner.address.as_deref() == Some(url.trim_end_matches('/')) =>
                {
                    cx.home.load_or_create_token()
                }
                Ok(_) | Err(_) => Err(CliError::new(
                    ExitKind::Refused,
                    "DOCKET_TOKEN is not set; the token is in the file `token` of the coordinator's home",
                )),
            }
        })?;
        CoordinatorClient::with_ca(url, token, cx.ca_certificates()?.as_deref())
            .map(|client| Self { client, local: None, lock: None, scratch: None })
            .fail_as(ExitKind::Usage)
    }
}
