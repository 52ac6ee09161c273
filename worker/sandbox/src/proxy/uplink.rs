//! The proxy of one call: takes over the socket that its init made, and serves until it is dropped.

use std::{future::Future, io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use docket_schema::{policy::AllowList, tool::NetworkSeen};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{
    net::{TcpListener, UnixStream},
    time::sleep,
};

use super::{
    super::hand,
    meter::Meter,
    serve::{Reach, serve},
};

/// Connections of one call at once; more wait.
const CONNECTIONS_MAX: usize = 64;

/// After a connection that could not be taken: the host may lack descriptors for a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Uplink {
    meter: Arc<Meter>,
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Uplink {
    /// Takes the socket over that an init hands out before it starts its command. `None` where it hands out none: its
    /// answer says why.
    pub(crate) async fn taken(control: &UnixStream, allow: Arc<AllowList>) -> io::Result<Option<Self>> {
        let handed = hand::take(control).await?;
        handed.map(|socket| Self::over(socket, allow, Reach::Global)).transpose()
    }

    pub(super) fn over(socket: OwnedFd, allow: Arc<AllowList>, reach: Reach) -> io::Result<Self> {
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let meter = Arc::new(Meter::new(allow));
        let serving = Box::pin(serve_all(listener, Arc::clone(&meter), reach));
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
    pub(crate) fn end(self) -> NetworkSeen {
        let Self { meter, serving } = self;
        drop(serving);
        meter.seen()
    }
}

async fn serve_all(listener: TcpListener, meter: Arc<Meter>, reach: Reach) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            taken = listener.accept(), if open.len() < CONNECTIONS_MAX => match taken {
                Ok((program, _)) => open.push(serve(&meter, reach, program)),
                Err(_) => sleep(PAUSE).await,
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}
