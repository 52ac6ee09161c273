//! The coordinator as a running thing: listener, connections, periodic tasks, shutdown.
//!
//! Invariants: every spawned task belongs to the tracker that [`Running::shutdown`] awaits; never
//! more connections than the configuration allows; a bind beyond loopback is refused unless the
//! configuration says that it is meant.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use docket_schema::{
    ids::{Epoch, RunId},
    redact::Redactor,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::{self, Clock},
    http::{AnswerLost, Api, ApiToken, Limits, RunTokens, TokenTable, error_chain, router},
    store::{Store, StoreError},
    tasks::{Wakes, expire_leases, make_due_available},
};

/// How long a connection may take to send a request's head, idle time between requests included.
/// Above the 90 s after which clients drop idle connections, so that it is they who do: a request
/// sent into a closing connection is lost.
const HEAD_READ: Duration = Duration::from_secs(100);
/// Wait after `accept` failed: out of descriptors, mostly, and those come back.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Largest head of a request, in bytes, and most headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// Who may reach the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// This machine. Any other address is refused.
    Loopback,
    /// Whoever can reach the address, without encryption: tokens travel in clear.
    Insecure,
}

/// How a coordinator serves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Who may reach it.
    pub exposure: Exposure,
    /// The API tokens.
    pub tokens: Vec<ApiToken>,
    /// How long a lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How often workers are asked to send heartbeats.
    pub heartbeat_ms: u64,
    /// Most connections at a time; further ones wait to be accepted.
    pub connections_max: u32,
    /// How long requests in hand may take at shutdown.
    pub shutdown_grace_ms: u64,
    /// What is struck out of what people write, before it is stored.
    pub redactor: Redactor,
    /// Tests only: where the coordinator dies between a commit and its answer.
    pub answers_lost: Vec<AnswerLost>,
}

impl ServerConfig {
    /// Loopback on `port`, with the protocol's usual times.
    pub fn loopback(port: u16, tokens: Vec<ApiToken>) -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], port)),
            exposure: Exposure::Loopback,
            tokens,
            lease_ms: 30_000,
            heartbeat_ms: 10_000,
            connections_max: 1024,
            shutdown_grace_ms: 5000,
            redactor: Redactor::default(),
            answers_lost: Vec::new(),
        }
    }
}

/// A coordinator that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Beyond loopback without saying so.
    #[error(
        "{0} is reachable from other machines, and tokens would travel in clear; bind to 127.0.0.1, or say --insecure behind a proxy with TLS"
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
    /// Times that cannot work.
    #[error(
        "heartbeats every {heartbeat_ms} ms cannot keep leases of {lease_ms} ms; set the lease to at least twice that"
    )]
    Times {
        /// The lease.
        lease_ms: u64,
        /// The heartbeat.
        heartbeat_ms: u64,
    },
}

/// Starts to serve.
///
/// # Errors
/// [`ServeError`] names what stands in the way.
pub async fn start(
    store: Arc<dyn Store>,
    config: ServerConfig,
    clock: Arc<Clock>,
) -> Result<Running, ServeError> {
    let ServerConfig { bind, exposure, lease_ms, heartbeat_ms, .. } = config;
    if exposure == Exposure::Loopback && !bind.ip().is_loopback() {
        return Err(ServeError::NotLoopback(bind));
    }
    if heartbeat_ms == 0 || lease_ms < heartbeat_ms.saturating_mul(2) {
        return Err(ServeError::Times { lease_ms, heartbeat_ms });
    }
    let listener = TcpListener::bind(bind).await.map_err(|source| bind_error(bind, source))?;
    let local_addr = listener.local_addr().map_err(|source| ServeError::Bind { bind, source })?;
    let secret = store.secret(clock::fresh_secret()).await?;
    let (shutdown, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (stop_now, wakes) = (CancellationToken::new(), Arc::new(Wakes::default()));
    let loopback_hosts_only = exposure == Exposure::Loopback;
    let api = Arc::new(Api {
        store: Arc::clone(&store),
        clock: Arc::clone(&clock),
        tokens: TokenTable::new(config.tokens),
        run_tokens: RunTokens::new(&secret),
        wakes: Arc::clone(&wakes),
        limits: Limits { lease_ms, heartbeat_ms, loopback_hosts_only },
        redactor: config.redactor,
        answers_lost: config.answers_lost,
        shutdown: shutdown.clone(),
    });
    let ended = shutdown.clone();
    tasks.spawn(expire_leases(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&wakes), lease_ms, ended));
    tasks.spawn(make_due_available(store, clock, Arc::clone(&wakes), shutdown.clone()));
    let accept = Accept {
        listener,
        service: router(Arc::clone(&api)),
        connections: Arc::new(Semaphore::new(config.connections_max as usize)),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
        stop_now: stop_now.clone(),
    };
    tasks.spawn(accept.run());
    let grace = Duration::from_millis(config.shutdown_grace_ms);
    Ok(Running { local_addr, handle: Handle { api }, tasks, shutdown, stop_now, grace })
}

fn bind_error(bind: SocketAddr, source: std::io::Error) -> ServeError {
    if source.kind() == std::io::ErrorKind::AddrInUse {
        ServeError::PortInUse(bind)
    } else {
        ServeError::Bind { bind, source }
    }
}

/// A coordinator that serves until [`Running::shutdown`], or until this is dropped.
pub struct Running {
    local_addr: SocketAddr,
    handle: Handle,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    stop_now: CancellationToken,
    grace: Duration,
}

impl Running {
    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address as clients take it: `http://127.0.0.1:7070`.
    pub fn url(&self) -> String {
        format!("http://{}", self.local_addr)
    }

    /// For other parts of the same process.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops accepting, answers long polls, lets requests in hand end within the grace, then ends
    /// what is left. The store stays open: it is its opener's.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("requests still in hand after the grace are cut");
            self.stop_now.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.stop_now.cancel();
    }
}

/// What other parts of the process may use of a running coordinator.
#[derive(Clone)]
pub struct Handle {
    api: Arc<Api>,
}

impl Handle {
    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.api.store)
    }

    /// The token of a run's holder under an epoch.
    pub fn run_token(&self, run: RunId, epoch: Epoch) -> String {
        self.api.run_tokens.make(run, epoch)
    }

    /// The wake-ups: whoever writes to the store past the API says so here.
    pub fn wakes(&self) -> Arc<Wakes> {
        Arc::clone(&self.api.wakes)
    }
}

struct Accept {
    listener: TcpListener,
    service: Router,
    connections: Arc<Semaphore>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    stop_now: CancellationToken,
}

impl Accept {
    async fn run(self) {
        loop {
            let permit = tokio::select! {
                () = self.shutdown.cancelled() => return,
                permit = Arc::clone(&self.connections).acquire_owned() => permit,
            };
            // Nobody closes the semaphore.
            let Ok(permit) = permit else { return };
            let stream = tokio::select! {
                () = self.shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match stream {
                Ok((stream, _)) => {
                    let (service, shutdown) = (self.service.clone(), self.shutdown.clone());
                    let stop_now = self.stop_now.clone();
                    self.tasks.spawn(async move {
                        serve(stream, service, shutdown, stop_now).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, service: Router, shutdown: CancellationToken, stop_now: CancellationToken) {
    // An answer is one small write; Nagle would hold it back for the client's acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("TCP_NODELAY: {error}");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_READ)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop_now.cancelled() => return,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = stop_now.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        // A client that goes away in the middle is no event of ours.
        tracing::debug!("a connection ended: {}", error_chain(&error));
    }
}
