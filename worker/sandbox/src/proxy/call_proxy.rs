//! The proxy of one call: takes over the socket that its init created, and serves until it is
//! dropped.

use std::{future::Future, io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use docket_schema::{policy::AllowList, tool::NetworkActivity};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{
    net::{TcpListener, UnixStream},
    time::sleep,
};

use super::{
    super::fd_passing,
    connection::{AddressScope, serve_connection},
    meter::NetworkMeter,
};

/// Maximum number of concurrent connections per call; more wait.
const CONNECTIONS_MAX: usize = 64;

/// Delay after a failed accept: the host may be short of descriptors for a moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The proxy of one call; see the module.
pub(crate) struct CallProxy {
    meter: Arc<NetworkMeter>,
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CallProxy {
    /// Receives the socket that an init passes before it starts its command. Returns `None` if the init
    /// passes none; its report says why.
    pub(crate) async fn accept_from_init(
        control: &UnixStream,
        allow: Arc<AllowList>,
    ) -> io::Result<Option<Self>> {
        let handed = fd_passing::recv_fd(control).await?;
        handed.map(|socket| Self::from_socket(socket, allow, AddressScope::Global)).transpose()
    }

    pub(super) fn from_socket(
        socket: OwnedFd,
        allow: Arc<AllowList>,
        reach: AddressScope,
    ) -> io::Result<Self> {
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let meter = Arc::new(NetworkMeter::new(allow));
        let serving = Box::pin(serve_connections(listener, Arc::clone(&meter), reach));
        Ok(Self { meter, serving })
    }

    /// Serves forever. Without a proxy there is nothing to serve, and it only waits.
    pub(crate) async fn serve(uplink: &mut Option<Self>) {
        match uplink {
            Some(uplink) => uplink.serving.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Ends every connection and returns the recorded activity.
    pub(crate) fn finish(self) -> NetworkActivity {
        let Self { meter, serving } = self;
        drop(serving);
        meter.snapshot()
    }
}

async fn serve_connections(listener: TcpListener, meter: Arc<NetworkMeter>, reach: AddressScope) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            taken = listener.accept(), if open.len() < CONNECTIONS_MAX => match taken {
                Ok((program, _)) => open.push(serve_connection(&meter, reach, program)),
                Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}
