//! One connection: HTTP/1.1 on a stream that enforces timeouts for slow clients.
//!
//! hyper bounds how long a connection may be idle. The cases it does not distinguish are handled here: a
//! request head that was begun must be completed soon, and a response that the client does not read ends the
//! connection. Unread response data is held in one buffer of hyper's and one of the system's, both bounded.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::Response,
};
use hyper::{
    Request,
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::Service,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::ConnectionTimeouts;
use crate::{
    error_chain::error_chain,
    http::{AuthenticatedOnce, ConnectionAddrs},
};

/// Largest request head in bytes, and most headers. Beyond them hyper itself replies 431, or 414 for the
/// target alone, and closes the connection.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// A connection with its timeouts; see the module.
pub(super) struct HttpConnection {
    pub(super) service: Router,
    /// Set once a valid token was received.
    pub(super) authenticated: AuthenticatedOnce,
    pub(super) timeouts: ConnectionTimeouts,
    pub(super) shutdown: CancellationToken,
    pub(super) abort: CancellationToken,
}

impl HttpConnection {
    /// Serves the connection until it ends.
    pub(super) async fn serve_stream<S>(self, stream: S, ends: ConnectionAddrs)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let phase = Arc::new(ConnectionPhase::default());
        let stream = TimeoutStream::new(stream, Arc::clone(&phase), self.timeouts);
        let router = TowerToHyperService::new(self.service);
        let service = ConnectionService { router, addrs: ends, authenticated: self.authenticated, phase };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.idle)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.abort.cancelled() => return,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = self.abort.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            // A client that disconnects in mid-request is not an error of ours.
            tracing::debug!("a connection ended: {}", error_chain(&error));
        }
    }
}

/// Phase of a connection.
#[derive(Debug, Default)]
struct ConnectionPhase(AtomicU8);

impl ConnectionPhase {
    /// Before the first request head is complete.
    const FRESH: u8 = 0;
    /// Between two requests.
    const IDLE: u8 = 1;
    /// A request head has started to arrive.
    const HEAD: u8 = 2;
    /// A request is being handled, until the last byte of the response body.
    const BUSY: u8 = 3;

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

/// The router with the addresses of the connection.
struct ConnectionService {
    router: TowerToHyperService<Router>,
    addrs: ConnectionAddrs,
    authenticated: AuthenticatedOnce,
    phase: Arc<ConnectionPhase>,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send>>;

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = ResponseFuture;

    fn call(&self, mut request: Request<Incoming>) -> ResponseFuture {
        self.phase.set(ConnectionPhase::BUSY);
        request.extensions_mut().insert(self.addrs);
        request.extensions_mut().insert(self.authenticated.clone());
        let (answer, phase) = (self.router.call(request), Arc::clone(&self.phase));
        Box::pin(async move {
            answer.await.map(|answer| answer.map(|body| Body::new(TrackedBody { body, phase })))
        })
    }
}

/// A response body that marks the connection idle when it ends: a stream that lasts for hours counts as a
/// response all that time, whatever its reader sends meanwhile.
struct TrackedBody {
    body: Body,
    phase: Arc<ConnectionPhase>,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    /// hyper drops a body once it has all of it or needs none.
    fn drop(&mut self) {
        self.phase.set(ConnectionPhase::IDLE);
    }
}

/// A stream that fails when the other side is too slow.
struct TimeoutStream<S> {
    stream: S,
    phase: Arc<ConnectionPhase>,
    /// When the current request head began.
    head_started: Option<Instant>,
    /// Timeout of the first request head.
    first: LazyTimeout,
    opened: Instant,
    head: LazyTimeout,
    stalled: LazyTimeout,
}

impl<S> TimeoutStream<S> {
    fn new(stream: S, phase: Arc<ConnectionPhase>, patience: ConnectionTimeouts) -> Self {
        let (head, stalled) =
            (LazyTimeout::new(patience.request_head), LazyTimeout::new(patience.response_stall));
        let (first, opened) = (LazyTimeout::new(patience.first_request), Instant::now());
        Self { stream, phase, head_started: None, first, opened, head, stalled }
    }
}

/// A timeout whose timer is only created while someone waits.
struct LazyTimeout {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl LazyTimeout {
    const fn new(within: Duration) -> Self {
        Self { limit: within, sleep: None, is_set: false }
    }

    /// Ready once the timeout has passed since `since`, or since the first poll after [`Self::stop`].
    fn poll_expired(&mut self, cx: &mut Context<'_>, since: Option<Instant>) -> Poll<()> {
        let until = since.unwrap_or_else(Instant::now) + self.limit;
        if !self.is_set {
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(until),
                None => self.sleep = Some(Box::pin(sleep_until(until))),
            }
            self.is_set = true;
        }
        self.sleep.as_mut().map_or(Poll::Pending, |sleep| sleep.as_mut().poll(cx))
    }

    const fn reset(&mut self) {
        self.is_set = false;
    }
}

fn timeout_error(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.phase.get() == ConnectionPhase::FRESH {
            let opened = self.opened;
            let late = match &read {
                Poll::Ready(_) => opened.elapsed() >= self.first.limit,
                Poll::Pending => self.first.poll_expired(cx, Some(opened)).is_ready(),
            };
            return if late { Poll::Ready(Err(timeout_error("no request arrived in time"))) } else { read };
        }
        if buf.filled().len() > before && self.phase.get() == ConnectionPhase::IDLE {
            self.phase.set(ConnectionPhase::HEAD);
            self.head_started = Some(Instant::now());
            self.head.reset();
        }
        if self.phase.get() != ConnectionPhase::HEAD {
            return read;
        }
        // A head that arrives in one piece, as nearly all do, never touches the timer.
        let begun = self.head_started;
        let late = match &read {
            Poll::Ready(_) => begun.is_some_and(|begun| begun.elapsed() >= self.head.limit),
            Poll::Pending => self.head.poll_expired(cx, begun).is_ready(),
        };
        if late { Poll::Ready(Err(timeout_error("the head of a request arrived too slowly"))) } else { read }
    }
}

impl<S: AsyncWrite + Unpin> TimeoutStream<S> {
    /// Passes a write's result on and fails a write that stalls for too long.
    fn check_write<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled.reset();
            return wrote;
        }
        ready!(self.stalled.poll_expired(cx, None));
        Poll::Ready(Err(timeout_error("the client does not read the response")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check_write(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check_write(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check_write(cx, shut)
    }
}
