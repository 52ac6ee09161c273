//! Accepts connections and spawns a task for each, with a permit that it releases at its end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ConnectionTimeouts, connection::HttpConnection, connection_limit::ConnectionLimiter, tls::TlsIdentity,
};
use crate::http::{AuthenticatedOnce, ConnectionAddrs};

/// Wait after `accept` failed, usually for lack of descriptors, which become free again.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Shortest interval between log lines about `accept` failures.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts `accept` failures between log lines: without free descriptors it fails twenty times a second.
#[derive(Default)]
struct AcceptFailures {
    count: u64,
    last_logged: Option<Instant>,
}

impl AcceptFailures {
    /// Counts a failure at `now`; returns whether it is time to log.
    fn should_log_failure(&mut self, now: Instant) -> bool {
        self.count += 1;
        let is_told = self.last_logged.is_none_or(|told| now.duration_since(told) >= LOG_INTERVAL);
        if is_told {
            self.last_logged = Some(now);
        }
        is_told
    }

    fn take_count(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }
}

/// Accept loop of a listener; see the module.
pub(super) struct ConnectionAcceptor {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsIdentity>,
    pub(super) service: Router,
    pub(super) limiter: Arc<ConnectionLimiter>,
    pub(super) timeouts: ConnectionTimeouts,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
    pub(super) abort: CancellationToken,
}

impl ConnectionAcceptor {
    /// Accepts connections until shutdown.
    pub(super) async fn run(self) {
        let mut failures = AcceptFailures::default();
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if failures.should_log_failure(Instant::now()) {
                        tracing::warn!(
                            failures = failures.take_count(),
                            "cannot accept connections: {error}"
                        );
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            // Room is made only once a connection has arrived.
            let room = tokio::select! {
                () = self.shutdown.cancelled() => return,
                room = self.limiter.acquire_slot() => room,
            };
            let Some(room) = room else { return };
            match self.limiter.acquire_permit(peer.ip(), room) {
                Some(seat) => {
                    let serve = self.serve_connection(stream, peer, seat.authenticated.clone());
                    self.tasks.spawn(async move {
                        tokio::select! {
                            () = serve => {}
                            () = seat.evicted.cancelled() => {
                                tracing::debug!(%peer, "evicting a connection without a token");
                            }
                        }
                        drop(seat);
                    });
                }
                None => tracing::debug!(%peer, "closing a connection beyond the limit of its address"),
            }
        }
    }

    fn serve_connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        proven: AuthenticatedOnce,
    ) -> impl Future<Output = ()> + Send + use<> {
        let connection = HttpConnection {
            authenticated: proven,
            service: self.service.clone(),
            timeouts: self.timeouts,
            shutdown: self.shutdown.clone(),
            abort: self.abort.clone(),
        };
        let tls = self.tls.clone();
        async move {
            // A response is one small write, which Nagle's algorithm would delay until the client's
            // acknowledgement.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("TCP_NODELAY: {error}");
            }
            let Ok(local) = stream.local_addr() else { return };
            let ends = ConnectionAddrs { peer: peer.ip(), local: local.ip() };
            let Some(tls) = tls else { return connection.serve_stream(stream, ends).await };
            let within = connection.timeouts.handshake;
            let shaken = tokio::select! {
                () = connection.shutdown.cancelled() => return,
                shaken = tokio::time::timeout(within, tls.accept(stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => connection.serve_stream(stream, ends).await,
                Ok(Err(error)) => tracing::debug!(%peer, "TLS handshake failed: {error}"),
                Err(_) => tracing::debug!(%peer, "TLS handshake timed out after {within:?}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_at_a_bounded_rate_and_all_counted() {
        let (mut failures, start) = (AcceptFailures::default(), Instant::now());
        let mut told = Vec::new();
        for n in 0..=401 {
            if failures.should_log_failure(start + ACCEPT_RETRY * n) {
                told.push(failures.take_count());
            }
        }
        assert_eq!(told, [1, 200, 200]);
    }
}
