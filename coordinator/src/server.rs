//! The running coordinator: listener, connections, background jobs, shutdown.
//!
//! Invariants: every spawned job belongs to the tracker that [`RunningServer::shutdown`] awaits; there are
//! never more connections than configured; a bind beyond loopback without TLS is refused unless the
//! configuration allows it explicitly.

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

/// How long aborted work may take to end after the grace period; it only has to release resources.
const ABORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeouts for slow clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// An idle connection between two requests. Longer than the 90 s after which clients drop idle
    /// connections, so that the client closes first: a request sent into a closing connection is lost.
    pub idle: Duration,
    /// From the start of a connection until the head of its first request is complete.
    pub first_request: Duration,
    /// From the first byte of a later request's head until it is complete.
    pub request_head: Duration,
    /// One request body: enough for the largest one on a slow line.
    pub body: Duration,
    /// A response that makes no progress because its reader is gone or does not read.
    pub response_stall: Duration,
    /// The TLS handshake.
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
    /// This machine only; other addresses are refused.
    Loopback,
    /// Everyone who can reach the address. Without TLS, tokens are sent in clear text.
    Open,
}

/// What a coordinator with a [`Notifier`] does about notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationMode {
    /// Follows the log and delivers.
    Deliver,
    /// Only shows them: a short-lived coordinator leaves delivery to the serving one.
    ShowOnly,
}

/// Server configuration.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; port 0 picks a free port.
    pub bind: SocketAddr,
    /// Who may reach it.
    pub exposure: ListenExposure,
    pub tokens: Vec<ApiToken>,
    /// Length of a lease without a heartbeat, in milliseconds.
    pub lease_ms: u64,
    /// Heartbeat interval requested from workers, in milliseconds.
    pub heartbeat_ms: u64,
    /// Enables TLS. A second listener without TLS is then opened on a free loopback port for clients on this
    /// machine.
    pub tls: Option<TlsIdentity>,
    /// Host names under which clients may address it, in addition to its addresses.
    pub hosts: Vec<String>,
    /// Most connections at a time, as far as this process's file descriptors allow. Another connection
    /// replaces the oldest one that never sent a valid token; if there is none, it waits.
    pub connections_max: u32,
    /// Most connections from one remote address. Another one replaces an unauthenticated connection of the
    /// same address or is closed at once. Loopback gets three quarters of all connections if that is more.
    pub connections_per_peer: u32,
    /// Rate limits per caller.
    pub rate_limits: RateLimits,
    pub timeouts: ConnectionTimeouts,
    /// How often the store is polled on behalf of waiting requests.
    pub poll_intervals: PollIntervals,
    /// How long requests in progress may take at shutdown, in milliseconds.
    pub shutdown_grace_ms: u64,
    /// Removes secrets from text that people submit, before it is stored.
    pub redactor: Redactor,
    pub archive: ArchiveSettings,
    /// Provides views of run histories; without it the routes reply that they are not available.
    pub history_provider: Option<Arc<dyn HistoryProvider>>,
    /// Delivers notifications; without it none are sent.
    pub notifier: Option<Arc<dyn Notifier>>,
    /// Whether this coordinator delivers notifications.
    pub notification_mode: NotificationMode,
    /// Where the coordinator dies between a commit and its reply. Tests only.
    pub reply_failpoints: Vec<LostReply>,
}

impl ServerConfig {
    /// Returns a configuration for loopback on `port` with the protocol's default timings.
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
    /// The address is beyond loopback, without TLS or an explicit setting.
    #[error(
        "{0} is reachable from other machines, and tokens would be sent in clear text; bind to 127.0.0.1, \
         give --tls-cert and --tls-key, or use --insecure behind a proxy with TLS"
    )]
    NotLoopback(SocketAddr),
    /// Another process uses the port.
    #[error("port {} is in use; stop the process that uses it, or choose another port", .0.port())]
    PortInUse(SocketAddr),
    /// The listener cannot be created.
    #[error("cannot listen on {bind}; choose another address or port")]
    Bind {
        /// Address.
        bind: SocketAddr,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The store's secret cannot be read.
    #[error("the store cannot be used; see `docket doctor`")]
    Store(#[from] StoreError),
    /// The tokens cannot be read from the log.
    #[error("the API tokens cannot be read")]
    Tokens(#[source] FoldError),
    /// The notifications cannot be read from the log.
    #[error("the notifications cannot be read")]
    Notifications(#[source] FoldError),
    /// The provider limits cannot be read from the log.
    #[error("the provider limits cannot be read")]
    Limits(#[source] FoldError),
    /// The heartbeat interval is too long for the lease.
    #[error(
        "heartbeats every {heartbeat_ms} ms cannot keep leases of {lease_ms} ms; set the lease to at least twice that"
    )]
    InvalidLeaseTimes {
        /// Lease length, in milliseconds.
        lease_ms: u64,
        /// Heartbeat interval, in milliseconds.
        heartbeat_ms: u64,
    },
}

/// Starts the server. The error names the obstacle.
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

/// Creates the application state and reads what must be known of the log before requests are served.
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

/// Starts the background jobs.
async fn start_background_jobs(
    tasks: &TaskTracker,
    app: &Arc<AppState>,
    notices: NotificationMode,
) -> Result<(), ServeError> {
    let shared = || Arc::clone(app);
    let tells =
        app.notifier.clone().filter(|to| notices == NotificationMode::Deliver && !to.targets().is_empty());
    if let Some(notifier) = tells {
        // Before requests are served, so that everything that happens from now on raises notifications.
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

/// Checks that a coordinator could listen on the address now, before another one is stopped for it. Fails
/// with the same error as [`start_server`].
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

/// A running coordinator. It serves until [`RunningServer::shutdown`] or until it is dropped.
pub struct RunningServer {
    local_addr: SocketAddr,
    loopback_addr: Option<SocketAddr>,
    handle: ServerHandle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    abort: CancellationToken,
    grace: Duration,
}

impl RunningServer {
    /// Returns the address it listens on.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the URL for clients on this machine, such as `http://127.0.0.1:7070`.
    pub fn url(&self) -> String {
        let mut at = self.loopback_addr.unwrap_or(self.local_addr);
        if at.ip().is_unspecified() {
            let here = if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            at.set_ip(here);
        }
        format!("http://{at}")
    }

    /// Returns the URL for remote clients if it differs.
    pub fn tls_url(&self) -> Option<String> {
        self.loopback_addr.map(|_| format!("https://{}", self.local_addr))
    }

    /// Returns a handle for other parts of the same process.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Stops accepting, completes long polls, lets requests in progress end within the grace period, and
    /// aborts the rest. Requests waiting for a stuck store are abandoned. The store stays open; it belongs to
    /// the caller that opened it.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("aborting requests still in progress after the grace period");
            self.abort.cancel();
            if tokio::time::timeout(ABORT_TIMEOUT, self.tasks.wait()).await.is_err() {
                let stall = self.handle.api.store.writer_stall();
                let why =
                    stall.map_or_else(|| "the store does not respond".to_owned(), |stall| stall.to_string());
                tracing::error!("background work does not end and is abandoned: {why}");
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

/// Access to a running coordinator for other parts of the process.
#[derive(Clone)]
pub struct ServerHandle {
    api: Arc<ApiState>,
}

impl ServerHandle {
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.api.store)
    }

    /// Returns the state shared by the routes.
    #[cfg(test)]
    pub(crate) fn api(&self) -> Arc<ApiState> {
        Arc::clone(&self.api)
    }

    /// Returns the token of a run's lease holder for an epoch.
    pub fn run_token(&self, run: RunId, epoch: Epoch) -> String {
        self.api.run_tokens.issue_token(run, epoch)
    }

    /// Returns the wake-up bus. Code that writes to the store without the API must notify it.
    pub fn wakeups(&self) -> Arc<WakeupBus> {
        Arc::clone(&self.api.wakeups)
    }
}
