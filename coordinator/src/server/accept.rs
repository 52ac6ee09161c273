//! Accepts connections, each a task of its own with a seat that it gives back.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Patience, connection::Connection, seats::Seats, tls::TlsIdentity};
use crate::http::Ends;

/// Wait after `accept` failed: out of descriptors, mostly, and those come back.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

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
        loop {
            let room = tokio::select! {
                () = self.shutdown.cancelled() => return,
                room = self.seats.room() => room,
            };
            let Some(room) = room else { return };
            let accepted = tokio::select! {
                () = self.shutdown.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match self.seats.take(peer.ip(), room) {
                    Some(seat) => {
                        let serve = self.serve(stream, peer);
                        self.tasks.spawn(async move {
                            serve.await;
                            drop(seat);
                        });
                    }
                    None => tracing::debug!(%peer, "a connection above the share of its address is closed"),
                },
                Err(error) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr) -> impl Future<Output = ()> + Send + use<> {
        let connection = Connection {
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
