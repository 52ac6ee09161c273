//! A process that shares a home with others: it serves the home, or works for the process that does and takes
//! over when that process ends.
//!
//! `docket run` and `docket up` are members. Any number of them may run in one home. The first one takes the
//! home's lock and serves; the others use a client that looks up the owner for each new connection. A member
//! that does not serve keeps trying to take the lock, so when the owner ends, in order or by `kill -9`, another
//! member serves within a moment and all continue. A `docket run` hands the home over to a `docket up`
//! ([`crate::home::handover`]). Invariant: only the holder of the lock serves, so the home's database has one
//! coordinator at a time.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use docket_worker::client::{CoordinatorClient, home_address};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    context::CliContext,
    home::{
        DocketHome, HomeLock, HomeOwner, HomeOwnership, OwnerCommand,
        handover::{HandoverWatch, UpClaim},
        worker_registry,
    },
    output::error::{CliError, CliResult, ExitKind},
    services::serve::{self, HomeCoordinator, ServerArgs},
};

/// How long to wait for an owner that starts or hands the home over, or for a short writing command.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often a member tries the lock held by another process, and how often the owner checks for a handover
/// request: short compared with a lease and a person's patience.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The delay after a member could not serve, for example because its port is taken or its database is
/// unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The command of a member, with its side of the handover.
#[derive(Debug)]
pub(crate) enum MemberKind {
    /// `docket run`: serves if no other process does.
    Run(HandoverWatch),
    /// `docket up`: a run that serves hands the home over to it.
    Up(UpClaim),
}

impl MemberKind {
    const fn command(&self) -> OwnerCommand {
        match self {
            Self::Run(_) => OwnerCommand::Run,
            Self::Up(_) => OwnerCommand::Up,
        }
    }

    /// Whether it may take a free lock.
    fn can_take_lock(&mut self, home: &DocketHome) -> bool {
        match self {
            Self::Run(yielding) => !yielding.should_leave_lock(home, Instant::now()),
            Self::Up(_) => true,
        }
    }

    /// Requests the home from its owner when that is due; returns whether it did.
    ///
    /// # Errors
    /// Fails when this process could not serve instead of the owner.
    async fn request_handover(
        &mut self,
        cx: &CliContext,
        args: &ServerArgs,
        owner: &HomeOwner,
    ) -> CliResult<bool> {
        let claim = match self {
            Self::Up(claim) if owner.command == Some(OwnerCommand::Run) => claim,
            Self::Up(_) | Self::Run(_) => return Ok(false),
        };
        if !claim.has_fresh_request() {
            check_same_store(cx.home.path(), owner, &serve::store_fingerprint(cx))?;
            serve::check_listen(cx, args).await?;
            claim.request_handover()?;
        }
        Ok(true)
    }

    /// Withdraws the request: this process serves, or cannot.
    fn withdraw(&mut self) {
        match self {
            Self::Up(claim) => claim.withdraw(),
            Self::Run(_) => {}
        }
    }
}

/// The delay before a member that could not serve requests the home again.
const ASK_AFTER_FAILURE: Duration = Duration::from_secs(300);

/// The role of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberRole {
    /// It serves the home.
    Serves {
        /// The address for clients on this machine.
        address: String,
        /// The address for other clients, if different.
        tls_address: Option<String>,
    },
    /// Another process serves it.
    Joined(HomeOwner),
}

/// A member of a home.
#[derive(Debug)]
pub(crate) struct HomeMember {
    address: String,
    role: watch::Receiver<MemberRole>,
    leave: CancellationToken,
    background: JoinHandle<()>,
}

/// The background part of a member.
struct MembershipLoop {
    cx: CliContext,
    args: ServerArgs,
    kind: MemberKind,
    role: watch::Sender<MemberRole>,
    /// Whether this process would serve the same store as the owner that it joined.
    may_take_over: bool,
    /// Whether taking over has failed before; logged only once.
    has_failed: bool,
    /// When the owner may be asked to hand the home over.
    may_ask_at: Instant,
    client: CoordinatorClient,
}

impl HomeMember {
    /// Joins the home of `cx`, serving it if no other process does.
    ///
    /// # Errors
    /// Fails when the home cannot be served, its owner does not respond, or `docket up` would join an owner
    /// with another store.
    pub(crate) async fn join(cx: &CliContext, args: ServerArgs, mut kind: MemberKind) -> CliResult<Self> {
        let address = home_address(&cx.home.lock_path()).ok_or_else(|| {
            CliError::new(ExitKind::Usage, "the home's path cannot be used as an address; use another --home")
        })?;
        let client = CoordinatorClient::new(&address, cx.home.load_or_create_token()?)?;
        let mut cx = cx.clone();
        serve::apply_server_args(&mut cx, &args)?;
        let (served, first) = serve_or_join(&mut cx, &args, &mut kind).await?;
        let may_take_over = match &first {
            MemberRole::Serves { .. } => true,
            MemberRole::Joined(owner) => {
                match check_same_store(cx.home.path(), owner, &serve::store_fingerprint(&cx)) {
                    Ok(()) => true,
                    // It would work on a different backlog than intended.
                    Err(refused) if matches!(kind, MemberKind::Up(_)) => return Err(refused),
                    // Its task runs from the owner's store, as long as the owner serves.
                    Err(_) => false,
                }
            }
        };
        if served.is_some() {
            worker_registry::release_dead_workers(&cx.home, &client).await;
        }
        let (sender, role) = watch::channel(first);
        let leave = CancellationToken::new();
        let membership = MembershipLoop {
            cx,
            args,
            kind,
            role: sender,
            may_take_over,
            has_failed: false,
            may_ask_at: Instant::now(),
            client,
        };
        let background = tokio::spawn(membership.run_loop(served, leave.clone()));
        Ok(Self { address, role, leave, background })
    }

    /// The address of the home's coordinator, whichever process that is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Watches the role of this process.
    pub(crate) fn role(&self) -> watch::Receiver<MemberRole> {
        self.role.clone()
    }

    /// Leaves the home. If this process serves it, its coordinator shuts down and another member takes over.
    pub(crate) async fn leave(self) {
        self.leave.cancel();
        if let Err(error) = self.background.await {
            tracing::error!(%error, "the home was not left cleanly");
        }
    }
}

impl MembershipLoop {
    async fn run_loop(mut self, mut served: Option<HomeCoordinator>, leave: CancellationToken) {
        loop {
            let Some(serving) = served.take() else {
                tokio::select! {
                    () = leave.cancelled() => return,
                    taken = self.take_over() => served = taken,
                }
                continue;
            };
            tokio::select! {
                () = leave.cancelled() => {}
                () = worker_registry::watch_for_dead_workers(&self.cx.home, &self.client) => {}
                () = self.wait_for_handover_request() => {
                    tracing::info!("`docket up` requested the home; handing it over and continuing to work");
                }
            }
            // Requests in progress finish first; their time is limited.
            serving.stop().await;
            if leave.is_cancelled() {
                return;
            }
        }
    }

    /// Waits until another process requests the home that this one serves.
    async fn wait_for_handover_request(&self) {
        let yielding = match &self.kind {
            MemberKind::Run(yielding) => yielding,
            MemberKind::Up(_) => return std::future::pending().await,
        };
        while yielding.open_request(&self.cx.home).is_none() {
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    /// Waits for the lock and serves. `None` = it could not serve and will try again.
    async fn take_over(&mut self) -> Option<HomeCoordinator> {
        if !self.may_take_over {
            return std::future::pending().await;
        }
        let lock = self.lock_when_free().await;
        let started =
            HomeCoordinator::start_with_lock(&mut self.cx, &self.args, self.kind.command(), lock).await;
        self.kind.withdraw();
        match started {
            Ok(served) => {
                tracing::info!(address = served.address(), "this process now serves the home");
                self.role.send_replace(serving_role(&served));
                Some(served)
            }
            Err(failure) => {
                let error = &failure.error;
                match std::mem::replace(&mut self.has_failed, true) {
                    false => tracing::warn!(%error, "this process cannot serve the home; retrying"),
                    true => tracing::debug!(%error, "this process cannot serve the home yet"),
                }
                // Do not stop the new owner again for nothing.
                self.may_ask_at = Instant::now() + ASK_AFTER_FAILURE;
                tokio::time::sleep(RETRY_DELAY).await;
                None
            }
        }
    }

    async fn lock_when_free(&mut self) -> HomeLock {
        loop {
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
            if self.kind.can_take_lock(&self.cx.home) {
                match self.cx.home.try_lock() {
                    Ok(Some(lock)) => return lock,
                    Ok(None) => {}
                    Err(failure) => tracing::warn!(error = %failure.error, "cannot try the home's lock"),
                }
            }
            self.update_owner().await;
        }
    }

    /// Reports a change of the process that serves the home, and requests the home from it when that is due.
    async fn update_owner(&mut self) {
        let Ok(HomeOwnership::Owned(owner)) = self.cx.home.ownership() else { return };
        if owner.address.is_none() || owner.is_gone() {
            return;
        }
        if Instant::now() >= self.may_ask_at
            && let Err(failure) = self.kind.request_handover(&self.cx, &self.args, &owner).await
        {
            self.may_ask_at = Instant::now() + RETRY_DELAY;
            tracing::debug!(error = %failure.error, "this process cannot serve the home yet");
        }
        let joined = MemberRole::Joined(owner);
        self.role.send_if_modified(|role| {
            let is_news = *role != joined;
            *role = joined;
            is_news
        });
    }
}

fn serving_role(served: &HomeCoordinator) -> MemberRole {
    MemberRole::Serves { address: served.address().to_owned(), tls_address: served.tls_address() }
}

/// Checks that the owner serves the store that this process was configured to use; otherwise this process could
/// not take over.
fn check_same_store(home: &Path, owner: &HomeOwner, mark: &str) -> CliResult<()> {
    let serves = match &owner.store {
        Some(store) if store == mark => return Ok(()),
        Some(_) => "a different store than this process is configured for",
        None => "an unnamed store",
    };
    let command = owner.command.map_or_else(|| "docket".to_owned(), |command| command.to_string());
    let message = format!(
        "`{command}` (process {}) serves {} from {serves}; stop it, give both the same store (--store, DATABASE_URL or \
         `server.store` of docket.toml), or use another home with --home",
        owner.pid,
        home.display()
    );
    Err(CliError::new(ExitKind::Refused, message))
}

/// Serves the home, or finds its owner.
async fn serve_or_join(
    cx: &mut CliContext,
    args: &ServerArgs,
    kind: &mut MemberKind,
) -> CliResult<(Option<HomeCoordinator>, MemberRole)> {
    let until = Instant::now() + OWNER_WAIT_MAX;
    loop {
        if kind.can_take_lock(&cx.home)
            && let Some(lock) = cx.home.lock()?
        {
            let served = HomeCoordinator::start_with_lock(cx, args, kind.command(), lock).await?;
            kind.withdraw();
            let role = serving_role(&served);
            return Ok((Some(served), role));
        }
        match cx.home.ownership()? {
            // A dead owner's lock lingers briefly, and an owner without an address finishes shortly.
            HomeOwnership::Owned(owner) if owner.address.is_some() && !owner.is_gone() => {
                // A stopped owner will hand the home over later.
                if !kind.request_handover(cx, args, &owner).await? || Instant::now() >= until {
                    return Ok((None, MemberRole::Joined(owner)));
                }
            }
            HomeOwnership::Owned(_) | HomeOwnership::Starting | HomeOwnership::Free => {}
        }
        if Instant::now() >= until {
            return Err(serve::already_served_error(cx)?);
        }
        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_another_or_unnamed_store_is_not_joined() {
        let owner = |store: Option<&str>| HomeOwner {
            pid: 42,
            version: String::new(),
            address: Some("http://127.0.0.1:1".to_owned()),
            command: Some(OwnerCommand::Run),
            store: store.map(str::to_owned),
        };
        let check = |store| check_same_store(Path::new("/home"), &owner(store), "this store");
        check(Some("this store")).expect("the same store");
        for (store, says) in [(Some("that store"), "a different store"), (None, "unnamed")] {
            let refused = check(store).expect_err("is refused");
            let text = refused.error.to_string();
            assert!(refused.exit == ExitKind::Refused && text.contains(says), "{text}");
            assert!(text.contains("`docket run` (process 42) serves /home"), "{text}");
        }
    }
}
