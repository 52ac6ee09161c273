//! The proxy of one call: takes over the socket that its init made, and serves until it is dropped.

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

/// Connections of one call at once; more wait.
const CONNECTIONS_MAX: usize = 64;

/// After a connection that could not be taken: the host may lack descriptors for a moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct CallProxy {
    meter: Arc<NetworkMeter>,
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CallProxy {
    /// Takes the socket over that an init hands out before it starts its command. `None` where it hands out none: its
    /// answer says why.
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

    /// Serves; never ends. Without an uplink there is nothing to serve.
    pub(crate) async fn serve(uplink: &mut Option<Self>) {
        match uplink {
            Some(uplink) => uplink.serving.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Ends every connection, and says what was seen.
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
