//! The coordinator as a running thing: listener, connections, periodic tasks, shutdown.
//!
//! Invariants: every spawned task belongs to the tracker that [`Running::shutdown`] awaits; never
//! more connections than the configuration allows; a bind beyond loopback is refused without TLS, unless the
//! configuration says that it is meant.

mod accept;
mod connection;
mod connection_limit;
mod descriptors;
mod tls;

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use docket_schema::{
    ids::{Epoch, RunId},
    redact::Redactor,
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::AppState,
    archive::ArchiveSettings,
    background::{
        archive_old_tasks, consume_inbox, expire_leases, fire_schedules, follow_clock, follow_hints,
        make_due_available, send_hints, start_notifications, tail_streams, watch_writers,
        write_auth_failures,
    },
    clock::{self, Clock},
    history_provider::HistoryProvider,
    http::{
        ApiConfig, ApiSettings, ApiState, ApiToken, LostReply, RateLimits, build_api_state, build_router,
    },
    leases::{LeaderRole, LeaseLength, maintain_leadership, set_clock},
    notify::{Notifier, NotifyMetrics, start_following},
    store::{Store, StoreError},
    system::{
        AuthFailureCounts, FoldError, MemoryTable, ProviderLimitTable, ScheduleTable, TailedFold,
        TokenRegistry,
    },
    wakeups::WakeupBus,
};

pub use crate::http::PollIntervals;
use accept::ConnectionAcceptor;
use connection_limit::ConnectionLimiter;
pub use descriptors::raise_limit as raise_descriptors;
pub use tls::{TlsError, TlsIdentity};

/// How long what was cut after the grace may take to end: it only lets go of what it holds.
const ABORT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long slow clients are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// Nothing at all on a connection between two requests. Above the 90 s after which clients drop idle
    /// connections, so that it is they who do: a request sent into a closing connection is lost.
    pub idle: Duration,
    /// From a connection's beginning until its first request's head is whole: whoever connects has something
    /// to ask.
    pub first_request: Duration,
    /// From the first byte of a later request's head to its last.
    pub request_head: Duration,
    /// One body: what a thin line needs for the largest one.
    pub body: Duration,
    /// An answer of which nothing at all can be sent on: its reader has gone, or never reads.
    pub response_stall: Duration,
    /// A TLS handshake.
    pub handshake: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(100),
            first_request: Duration::from_secs(10),
            request_head: Duration::from_secs(20),
            body: Duration::from_secs(60),
            response_stall: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
        }
    }
}

/// Who may reach the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenExposure {
    /// This machine. Any other address is refused.
    Loopback,
    /// Whoever can reach the address. Without TLS tokens travel in clear.
    Open,
}

/// What a coordinator does with notifications, where it has a [`Notifier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationMode {
    /// It reads the log on and tells.
    Deliver,
    /// It shows them alone: it lives for a moment, and whoever serves tells.
    ShowOnly,
}

/// How a coordinator serves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Who may reach it.
    pub exposure: ListenExposure,
    /// The API tokens.
    pub tokens: Vec<ApiToken>,
    /// How long a lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How often workers are asked to send heartbeats.
    pub heartbeat_ms: u64,
    /// With it the listener speaks TLS, and a second one, on a free port of loopback, does not: for whoever is
    /// on this machine.
    pub tls: Option<TlsIdentity>,
    /// Names by which it may be called, beside its addresses.
    pub hosts: Vec<String>,
    /// Most connections at a time, as far as the descriptors of this process reach. A further one takes the
    /// place of the oldest that never brought a good token; where there is none, it waits.
    pub connections_max: u32,
    /// Most of them from one other address; further ones take such a place of
    /// its own, or are closed at once. Loopback has three quarters of
    /// all, if that is more.
    pub connections_per_peer: u32,
    /// How fast somebody may ask.
    pub rate_limits: RateLimits,
    /// How long slow clients are waited for.
    pub timeouts: ConnectionTimeouts,
    /// How often the store is looked at for who waits.
    pub poll_intervals: PollIntervals,
    /// How long requests in hand may take at shutdown.
    pub shutdown_grace_ms: u64,
    /// What is struck out of what people write, before it is stored.
    pub redactor: Redactor,
    /// How it archives.
    pub archive: ArchiveSettings,
    /// What looks back at runs; without it the routes of that answer that there is none.
    pub history_provider: Option<Arc<dyn HistoryProvider>>,
    /// Who is told of what needs them, and how; without it nobody is.
    pub notifier: Option<Arc<dyn Notifier>>,
    /// Whether this coordinator tells them.
    pub notification_mode: NotificationMode,
    /// Tests only: where the coordinator dies between a commit and its answer.
    pub reply_failpoints: Vec<LostReply>,
}

impl ServerConfig {
    /// Loopback on `port`, with the protocol's usual times.
    pub fn loopback(port: u16, tokens: Vec<ApiToken>) -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], port)),
            exposure: ListenExposure::Loopback,
            tokens,
            lease_ms: 30_000,
            heartbeat_ms: 10_000,
            tls: None,
            hosts: Vec::new(),
            connections_max: 1024,
            connections_per_peer: 256,
            rate_limits: RateLimits::default(),
            timeouts: ConnectionTimeouts::default(),
            poll_intervals: PollIntervals::default(),
            shutdown_grace_ms: 5000,
            redactor: Redactor::default(),
            archive: ArchiveSettings::default(),
            history_provider: None,
            notifier: None,
            notification_mode: NotificationMode::Deliver,
            reply_failpoints: Vec::new(),
        }
    }
}

/// A coordinator that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Beyond loopback without saying so.
    #[error(
        "{0} is reachable from other machines, and tokens would travel in clear; bind to 127.0.0.1, give --tls-cert and --tls-key, or say --insecure behind a proxy with TLS"
    )]
    NotLoopback(SocketAddr),
    /// Another process has the port.
    #[error("port {} is in use; stop the process that has it, or choose another port", .0.port())]
    PortInUse(SocketAddr),
    /// The listener cannot be made.
    #[error("cannot listen on {bind}; choose another address or port")]
    Bind {
        /// Where.
        bind: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store does not give its secret.
    #[error("the store cannot be used; see `docket doctor`")]
    Store(#[from] StoreError),
    /// The log does not give its tokens.
    #[error("who may call is not known")]
    Tokens(#[source] FoldError),
    /// The log does not give its notifications.
    #[error("what is to be told is not known")]
    Notifications(#[source] FoldError),
    /// The log does not give its limits on model providers.
    #[error("how fast models may be asked is not known")]
    Limits(#[source] FoldError),
    /// Times that cannot work.
    #[error(
        "heartbeats every {heartbeat_ms} ms cannot keep leases of {lease_ms} ms; set the lease to at least twice that"
    )]
    InvalidLeaseTimes {
        /// The lease.
        lease_ms: u64,
        /// The heartbeat.
        heartbeat_ms: u64,
    },
}

/// Starts to serve. The error names what stands in the way.
pub async fn start_server(
    store: Arc<dyn Store>,
    config: ServerConfig,
    clock: Arc<Clock>,
) -> Result<RunningServer, ServeError> {
    let ServerConfig { bind, lease_ms, heartbeat_ms, .. } = config;
    check_exposure(bind, config.exposure, config.tls.as_ref())?;
    if heartbeat_ms == 0 || lease_ms < heartbeat_ms.saturating_mul(2) {
        return Err(ServeError::InvalidLeaseTimes { lease_ms, heartbeat_ms });
    }
    let (listener, local_addr) = bind_listener(bind).await?;
    let near = match config.tls {
        Some(_) => Some(bind_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?),
        None => None,
    };
    set_clock(&*store, &clock).await?;
    let secret = store.load_or_create_secret(clock::fresh_secret()).await?;
    let app = Arc::new(open_app(store, &config, clock).await?);
    let (tasks, shutdown, stop_now) = (TaskTracker::new(), app.shutdown.clone(), CancellationToken::new());
    let seats = ConnectionLimiter::new(
        descriptors::bounded_connections(config.connections_max),
        config.connections_per_peer,
    );
    let body_read = config.timeouts.body;
    let limits = ApiSettings {
        lease_ms,
        heartbeat_ms,
        body_timeout: body_read,
        poll_intervals: config.poll_intervals,
        allowed_hosts: config.hosts,
    };
    let api_config = ApiConfig {
        secret: &secret,
        task_tracker: tasks.clone(),
        rate_limits: config.rate_limits,
        settings: limits,
        run_history: config.history_provider,
        lost_replies: config.reply_failpoints,
    };
    let api = build_api_state(Arc::clone(&app), api_config);
    start_background_jobs(&tasks, &app, config.notification_mode).await?;
    let accept = |listener, tls| ConnectionAcceptor {
        listener,
        tls,
        service: build_router(Arc::clone(&api)),
        limiter: Arc::clone(&seats),
        timeouts: config.timeouts,
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
        abort: stop_now.clone(),
    };
    let near = near.map(|(listener, at)| {
        tasks.spawn(accept(listener, None).run());
        at
    });
    tasks.spawn(accept(listener, config.tls).run());
    let grace = Duration::from_millis(config.shutdown_grace_ms);
    Ok(RunningServer {
        local_addr,
        loopback_addr: near,
        handle: ServerHandle { api },
        tasks,
        shutdown,
        abort: stop_now,
        grace,
    })
}

/// The application, with what must be known of the log before anybody is served.
async fn open_app(
    store: Arc<dyn Store>,
    config: &ServerConfig,
    clock: Arc<Clock>,
) -> Result<AppState, ServeError> {
    let tokens = TokenRegistry::new(config.tokens.clone());
    tokens.fold.catch_up(&*store).await.map_err(ServeError::Tokens)?;
    let model_limits = ProviderLimitTable::default();
    model_limits.fold.catch_up(&*store).await.map_err(ServeError::Limits)?;
    let budgets = AtomicBool::new(store.has_budgets().await?);
    Ok(AppState {
        store,
        clock,
        wakeups: Arc::new(WakeupBus::default()),
        lease_length: Arc::new(LeaseLength::new(config.lease_ms)),
        tokens,
        schedules: ScheduleTable::default(),
        provider_limits: model_limits,
        memory: MemoryTable::default(),
        has_budgets: budgets,
        auth_failures: AuthFailureCounts::default(),
        redactor: config.redactor.clone(),
        archive: config.archive.clone(),
        notifications: Arc::new(TailedFold::default()),
        notifier: config.notifier.clone(),
        notify_metrics: Arc::new(NotifyMetrics::default()),
        shutdown: CancellationToken::new(),
    })
}

/// Starts what the coordinator does by itself.
async fn start_background_jobs(
    tasks: &TaskTracker,
    app: &Arc<AppState>,
    notices: NotificationMode,
) -> Result<(), ServeError> {
    let shared = || Arc::clone(app);
    let tells =
        app.notifier.clone().filter(|to| notices == NotificationMode::Deliver && !to.targets().is_empty());
    if let Some(notifier) = tells {
        // Before anybody is served: what happens from now on is told.
        let begun = start_following(&app.notifications, &*app.store, app.clock.now()).await;
        begun.map_err(ServeError::Notifications)?;
        start_notifications(tasks, app, notifier);
    }
    tasks.spawn(archive_old_tasks(shared()));
    tasks.spawn(tail_streams(shared()));
    tasks.spawn(consume_inbox(shared()));
    tasks.spawn(fire_schedules(shared()));
    if let Some(hints) = app.store.coordinator_hints() {
        tasks.spawn(send_hints(shared(), Arc::clone(&hints)));
        tasks.spawn(follow_hints(shared(), hints));
    }
    let lead = Arc::new(app.new_leader_lease(LeaderRole::Maintenance));
    tasks.spawn(maintain_leadership(Arc::clone(&lead), app.shutdown.clone()));
    tasks.spawn(expire_leases(shared(), Arc::clone(&lead)));
    tasks.spawn(follow_clock(shared(), Arc::clone(&lead)));
    tasks.spawn(make_due_available(shared(), lead));
    tasks.spawn(write_auth_failures(shared()));
    tasks.spawn(watch_writers(shared()));
    Ok(())
}

/// Checks that a coordinator could listen there now, for whoever must not stop another one in vain. The error is that of
/// [`start`].
pub async fn check_listen(
    bind: SocketAddr,
    exposure: ListenExposure,
    tls: Option<&TlsIdentity>,
) -> Result<(), ServeError> {
    check_exposure(bind, exposure, tls)?;
    bind_listener(bind).await.map(drop)
}

fn check_exposure(
    bind: SocketAddr,
    exposure: ListenExposure,
    tls: Option<&TlsIdentity>,
) -> Result<(), ServeError> {
    if exposure == ListenExposure::Loopback && tls.is_none() && !bind.ip().is_loopback() {
        return Err(ServeError::NotLoopback(bind));
    }
    Ok(())
}

async fn bind_listener(bind: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let listener = TcpListener::bind(bind).await.map_err(|source| bind_error(bind, source))?;
    let at = listener.local_addr().map_err(|source| ServeError::Bind { bind, source })?;
    Ok((listener, at))
}

fn bind_error(bind: SocketAddr, source: std::io::Error) -> ServeError {
    if source.kind() == std::io::ErrorKind::AddrInUse {
        ServeError::PortInUse(bind)
    } else {
        ServeError::Bind { bind, source }
    }
}

/// A coordinator that serves until [`Running::shutdown`], or until this is dropped.
pub struct RunningServer {
    local_addr: SocketAddr,
    /// The listener without TLS beside one with it.
    loopback_addr: Option<SocketAddr>,
    handle: ServerHandle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    abort: CancellationToken,
    grace: Duration,
}

impl RunningServer {
    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address as clients of this machine take it: `http://127.0.0.1:7070`.
    pub fn url(&self) -> String {
        let mut at = self.loopback_addr.unwrap_or(self.local_addr);
        if at.ip().is_unspecified() {
            let here = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            at.set_ip(here);
        }
        format!("http://{at}")
    }

    /// The address as clients elsewhere take it, where that is another.
    pub fn tls_url(&self) -> Option<String> {
        self.loopback_addr.map(|_| format!("https://{}", self.local_addr))
    }

    /// For other parts of the same process.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Stops accepting, answers long polls, lets requests in hand end within the grace, then ends
    /// what is left. What waits for a store that is stuck is left behind. The store stays open: it is its opener's.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("requests still in hand after the grace are cut");
            self.abort.cancel();
            if tokio::time::timeout(ABORT_TIMEOUT, self.tasks.wait()).await.is_err() {
                let stall = self.handle.api.store.writer_stall();
                let why =
                    stall.map_or_else(|| "the store does not answer".to_owned(), |stall| stall.to_string());
                tracing::error!("work of the coordinator itself does not end and is left behind: {why}");
            }
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.abort.cancel();
    }
}

/// What other parts of the process may use of a running coordinator.
#[derive(Clone)]
pub struct ServerHandle {
    api: Arc<ApiState>,
}

impl ServerHandle {
    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.api.store)
    }

    /// What routes share.
    #[cfg(test)]
    pub(crate) fn api(&self) -> Arc<ApiState> {
        Arc::clone(&self.api)
    }

    /// The token of a run's holder under an epoch.
    pub fn run_token(&self, run: RunId, epoch: Epoch) -> String {
        self.api.run_tokens.issue_token(run, epoch)
    }

    /// The wake-ups: whoever writes to the store past the API says so here.
    pub fn wakeups(&self) -> Arc<WakeupBus> {
        Arc::clone(&self.api.wakeups)
    }
}
