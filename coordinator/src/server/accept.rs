//! Accepts connections, each a task of its own with a seat that it gives back.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Patience, connection::Connection, seats::Seats, tls::TlsIdentity};
use crate::http::{Ends, Proven};

/// Wait after `accept` failed: out of descriptors, mostly, and those come back.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// How often failures of `accept` are told.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Failures of `accept` since they were last told: out of descriptors it fails twenty times a second.
#[derive(Default)]
struct Failures {
    count: u64,
    told: Option<Instant>,
}

impl Failures {
    /// Counts one at `now`; whether it is time to tell of them.
    fn is_told(&mut self, now: Instant) -> bool {
        self.count += 1;
        let is_told = self.told.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY);
        if is_told {
            self.told = Some(now);
        }
        is_told
    }

    fn take(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }
}

/// See the module.
pub(super) struct Accept {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsIdentity>,
    pub(super) service: Router,
    pub(super) seats: Arc<Seats>,
    pub(super) patience: Patience,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
    pub(super) stop_now: CancellationToken,
}

impl Accept {
    /// Until the shutdown.
    pub(super) async fn run(self) {
        let mut failures = Failures::default();
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if failures.is_told(Instant::now()) {
                        tracing::warn!(failures = failures.take(), "connections are not accepted: {error}");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            // Only once somebody is there does anybody have to make room.
            let room = tokio::select! {
                () = self.shutdown.cancelled() => return,
                room = self.seats.room() => room,
            };
            let Some(room) = room else { return };
            match self.seats.take(peer.ip(), room) {
                Some(seat) => {
                    let serve = self.serve(stream, peer, seat.proven.clone());
                    self.tasks.spawn(async move {
                        tokio::select! {
                            () = serve => {}
                            () = seat.leave.cancelled() => {
                                tracing::debug!(%peer, "a connection without a token makes room");
                            }
                        }
                        drop(seat);
                    });
                }
                None => tracing::debug!(%peer, "a connection above the share of its address is closed"),
            }
        }
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        proven: Proven,
    ) -> impl Future<Output = ()> + Send + use<> {
        let connection = Connection {
            proven,
            service: self.service.clone(),
            patience: self.patience,
            shutdown: self.shutdown.clone(),
            stop_now: self.stop_now.clone(),
        };
        let tls = self.tls.clone();
        async move {
            // An answer is one small write; Nagle would hold it back for the client's acknowledgement.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("TCP_NODELAY: {error}");
            }
            let Ok(local) = stream.local_addr() else { return };
            let ends = Ends { peer: peer.ip(), local: local.ip() };
            let Some(tls) = tls else { return connection.serve(stream, ends).await };
            let within = connection.patience.handshake;
            let shaken = tokio::select! {
                () = connection.shutdown.cancelled() => return,
                shaken = tokio::time::timeout(within, tls.accept(stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => connection.serve(stream, ends).await,
                Ok(Err(error)) => tracing::debug!(%peer, "no TLS handshake: {error}"),
                Err(_) => tracing::debug!(%peer, "no TLS handshake within {within:?}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_at_a_bounded_rate_and_none_is_forgotten() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let mut told = Vec::new();
        for n in 0..=401 {
            if failures.is_told(start + ACCEPT_RETRY * n) {
                told.push(failures.take());
            }
        }
        assert_eq!(told, [1, 200, 200]);
    }
}
