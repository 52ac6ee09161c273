//! A client, whoever answers it: a coordinator elsewhere, the home's owner, or one started here for
//! the duration of the command.
//!
//! Reading commands start one without taking the home's lock and without background work, so that any
//! number of them may run at once. Writing commands own the home while they last and say so without
//! an address; others wait for the moment that takes.

use std::time::{Duration, Instant};

use docket_worker::{
    client::{Client, home_address},
    secret::Secret,
};

use crate::{
    connect::{
        local::{Listening, Local},
        resolve,
    },
    context::Context,
    history::lineage::Source,
    home::{LINGER, Lock, Ownership},
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

mod aside;
pub(crate) use aside::fetch as fetch_archived;

/// How long to wait for an owner that starts, or for a writing command to be done.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often to look meanwhile.
const OWNER_POLL: Duration = Duration::from_millis(10);

/// What a command wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Look.
    Read,
    /// Change something.
    Write,
}

/// See the module.
pub(crate) struct Access {
    /// The way to the coordinator.
    pub(crate) client: Client,
    local: Option<Local>,
    /// Released after the coordinator has ended.
    lock: Option<Lock>,
    /// Removed last.
    scratch: Option<tempfile::TempDir>,
}

/// The token that the environment gives, if it does.
pub(crate) fn token_given() -> Option<Secret> {
    std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new)
}

impl Access {
    /// Finds or starts a coordinator.
    pub(crate) async fn open(cx: &Context, need: Need) -> Outcome<Self> {
        if let Some(url) = &cx.url {
            return Self::remote(cx, url);
        }
        let (until, gone_until) = (Instant::now() + OWNER_WAIT_MAX, Instant::now() + LINGER);
        loop {
            match cx.home.ownership()? {
                Ownership::Owned(owner) if owner.is_gone() && Instant::now() < gone_until => {}
                Ownership::Owned(owner) => {
                    if let Some(address) = owner.address {
                        // Another process may serve the home before the command is done: `follow` takes hours.
                        let address = home_address(&cx.home.lock_path()).unwrap_or(address);
                        // A given token may have fewer rights; it has those on this machine as well.
                        return match token_given() {
                            Some(token) => Self::of(&address, token),
                            None => Self::of(&address, cx.home.token()?),
                        };
                    }
                    if need == Need::Read {
                        return Self::here(cx, None).await;
                    }
                }
                Ownership::Starting => {}
                Ownership::Free => match need {
                    Need::Read => return Self::here(cx, None).await,
                    Need::Write => {
                        if let Some(mut lock) = cx.home.try_lock()? {
                            lock.announce_moment()?;
                            return Self::here(cx, Some(lock)).await;
                        }
                    }
                },
            }
            if Instant::now() >= until {
                let message = format!(
                    "another docket holds {} and does not answer; end it, or name another home with --home",
                    cx.home.path().display()
                );
                return Err(Failure::new(Exit::Unreachable, message));
            }
            // A lock file cannot be waited for together with what is written into it.
            tokio::time::sleep(OWNER_POLL).await;
        }
    }

    /// As [`Access::open`] for looking at what `id` names: where that is archived, at a store of its own that its
    /// file was unpacked into, which goes with this.
    pub(crate) async fn to_read(cx: &Context, id: &str) -> Outcome<Self> {
        let access = Self::open(cx, Need::Read).await?;
        match resolve::archived(&access.client, id).await {
            Ok(None) => Ok(access),
            Ok(Some(stream)) => {
                let aside = aside::open(cx, &access.client, &stream).await;
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
    pub(crate) const fn is_alone(&self) -> bool {
        self.local.is_some()
    }

    /// Where histories are read fastest.
    pub(crate) fn source(&self) -> Source {
        match &self.local {
            Some(local) => Source::Store(local.store()),
            None => Source::Client(self.client.clone()),
        }
    }

    /// Ends what was started here; what was done is durable already.
    pub(crate) async fn close(self) -> Outcome<()> {
        if let Some(local) = self.local {
            local.stop().await;
        }
        drop(self.lock);
        drop(self.scratch);
        Ok(())
    }

    /// At the store that the settings name, whoever serves the home: to read what is there. A file that is not there is
    /// not made.
    pub(crate) async fn at_store(cx: &Context) -> Outcome<Self> {
        let file = cx.config.store.as_deref().and_then(|store| store.strip_prefix("sqlite:"));
        if let Some(file) = file.map(|file| std::path::Path::new(file.trim_start_matches("//")))
            && !file.is_file()
        {
            let message = format!("there is no database {}; check --store, or DATABASE_URL", file.display());
            return Err(Failure::new(Exit::Usage, message));
        }
        Self::here(cx, None).await
    }

    async fn here(cx: &Context, lock: Option<Lock>) -> Outcome<Self> {
        let local = Local::start(cx, Listening::for_a_moment()).await?;
        let client = Client::new(local.address(), cx.home.token()?)?;
        Ok(Self { client, local: Some(local), lock, scratch: None })
    }

    fn of(address: &str, token: Secret) -> Outcome<Self> {
        Ok(Self { client: Client::new(address, token)?, local: None, lock: None, scratch: None })
    }

    fn remote(cx: &Context, url: &str) -> Outcome<Self> {
        let token = token_given().ok_or(()).or_else(|()| {
            // A coordinator of this very home may be named by its address too.
            match cx.home.ownership() {
                Ok(Ownership::Owned(owner))
                    if owner.address.as_deref() == Some(url.trim_end_matches('/')) =>
                {
                    cx.home.token()
                }
                Ok(_) | Err(_) => Err(Failure::new(
                    Exit::Refused,
                    "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home",
                )),
            }
        })?;
        Client::trusting(url, token, cx.ca()?.as_deref())
            .map(|client| Self { client, local: None, lock: None, scratch: None })
            .fail_as(Exit::Usage)
    }
}
