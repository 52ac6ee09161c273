//! A process that shares a home with others: it serves the home, or works for the process that does and takes over
//! when that one ends.
//!
//! `docket run` and `docket up` are members. Any number of them may live in one home. The first one takes the home's
//! lock and serves; the others reach it by a client that looks up the owner at each new connection. A member that does
//! not serve tries for the lock all along, so that when the owner ends, whether in order or by `kill -9`, one of the
//! others serves within a moment and all continue. A `docket run` hands the home over to a `docket up`
//! ([`crate::home::handover`]). Invariant: only the holder of the lock serves, so the home's database has one coordinator at a
//! time.

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

/// How long to wait for an owner that starts or hands the home over, or for a command that changes something in a moment.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often the lock is tried while another process has it, and how often its owner looks whether it is to hand it
/// over: a small part of a lease, and of a person's patience.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a member could not serve: its port is taken, its database is away.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Which command a member is, with what it knows of handovers.
#[derive(Debug)]
pub(crate) enum MemberKind {
    /// `docket run`: it serves where nobody else does.
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

    /// Asks the owner to hand the home over, where that is due. Whether it was asked.
    ///
    /// # Errors
    /// This process could not serve in its place.
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

    /// Takes back what it asked for: it serves, or cannot.
    fn withdraw(&mut self) {
        match self {
            Self::Up(claim) => claim.withdraw(),
            Self::Run(_) => {}
        }
    }
}

/// The pause before a member that could not serve asks for the home once more.
const ASK_AFTER_FAILURE: Duration = Duration::from_secs(300);

/// How a member stands to its home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberRole {
    /// It serves the home.
    Serves {
        /// Where it answers on this machine.
        address: String,
        /// Where it answers others, if that differs.
        tls_address: Option<String>,
    },
    /// Another process serves it.
    Joined(HomeOwner),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HomeMember {
    address: String,
    role: watch::Receiver<MemberRole>,
    leave: CancellationToken,
    background: JoinHandle<()>,
}

/// What runs behind a member.
struct MembershipLoop {
    cx: CliContext,
    args: ServerArgs,
    kind: MemberKind,
    role: watch::Sender<MemberRole>,
    /// Whether this process would serve the same store as the owner that it joined.
    may_take_over: bool,
    /// Whether taking over has failed before: that is logged once.
    has_failed: bool,
    /// When the owner may be asked to hand the home over.
    may_ask_at: Instant,
    client: CoordinatorClient,
}

impl HomeMember {
    /// Joins the home of `cx`: serves it where no other process does.
    ///
    /// # Errors
    /// The home cannot be served, its owner does not answer, or `docket up` would join the owner of another store.
    pub(crate) async fn join(cx: &CliContext, args: ServerArgs, mut kind: MemberKind) -> CliResult<Self> {
        let address = home_address(&cx.home.lock_path()).ok_or_else(|| {
            CliError::new(
                ExitKind::Usage,
                "the home's path cannot be written as an address; use another --home",
            )
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
                    // It would work on another backlog than it was told to.
                    Err(refused) if matches!(kind, MemberKind::Up(_)) => return Err(refused),
                    // Its task is carried out wherever the owner keeps it, as long as that one serves.
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

    /// The home's coordinator, whichever process that is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How this process stands to the home, and news of that.
    pub(crate) fn role(&self) -> watch::Receiver<MemberRole> {
        self.role.clone()
    }

    /// Leaves the home. Where this process serves it, its coordinator ends in order and another member takes over.
    pub(crate) async fn leave(self) {
        self.leave.cancel();
        if let Err(error) = self.background.await {
            tracing::error!(%error, "the home was not left in order");
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
                    tracing::info!("`docket up` asks for the home; this process hands it over and works on");
                }
            }
            // Requests in hand end first; their time is bounded.
            serving.stop().await;
            if leave.is_cancelled() {
                return;
            }
        }
    }

    /// Waits until another process asks for the home that this one serves.
    async fn wait_for_handover_request(&self) {
        let yielding = match &self.kind {
            MemberKind::Run(yielding) => yielding,
            MemberKind::Up(_) => return std::future::pending().await,
        };
        while yielding.open_request(&self.cx.home).is_none() {
            tokio::time::sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    /// Waits for the lock, and serves. `None`: it could not serve, and tries again.
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
                tracing::info!(address = served.address(), "this process serves the home now");
                self.role.send_replace(serving_role(&served));
                Some(served)
            }
            Err(failure) => {
                let error = &failure.error;
                match std::mem::replace(&mut self.has_failed, true) {
                    false => tracing::warn!(%error, "this process cannot serve the home; it tries again"),
                    true => tracing::debug!(%error, "this process cannot serve the home yet"),
                }
                // Whoever serves meanwhile is not stopped again for nothing.
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
                    Err(failure) => tracing::warn!(error = %failure.error, "the home's lock cannot be tried"),
                }
            }
            self.update_owner().await;
        }
    }

    /// Says who serves the home, where that is another process than before, and asks it for the home where that is due.
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

/// Checks that the owner serves the store that this process was told to use. Otherwise this process could not take over.
fn check_same_store(home: &Path, owner: &HomeOwner, mark: &str) -> CliResult<()> {
    let serves = match &owner.store {
        Some(store) if store == mark => return Ok(()),
        Some(_) => "another store than this process was told to use",
        None => "a store that it does not name",
    };
    let command = owner.command.map_or_else(|| "docket".to_owned(), |command| command.to_string());
    let message = format!(
        "`{command}` (process {}) serves {} from {serves}; end it, give both the same store (--store, DATABASE_URL or \
         `server.store` of docket.toml), or name another home with --home",
        owner.pid,
        home.display()
    );
    Err(CliError::new(ExitKind::Refused, message))
}

/// Serves the home, or finds who does.
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
            // A dead owner's lock lingers for a moment; an owner without an address is done in one.
            HomeOwnership::Owned(owner) if owner.address.is_some() && !owner.is_gone() => {
                // One that was stopped hands the home over later.
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
        for (store, says) in [(Some("that store"), "another store"), (None, "does not name")] {
            let refused = check(store).expect_err("is refused");
            let text = refused.error.to_string();
            assert!(refused.exit == ExitKind::Refused && text.contains(says), "{text}");
            assert!(text.contains("`docket run` (process 42) serves /home"), "{text}");
        }
    }
}
