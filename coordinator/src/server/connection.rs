//! One connection: HTTP/1.1 on a stream that watches how slow its other side is.
//!
//! hyper bounds how long a connection may be idle. What it does not tell apart is done here: a head that was
//! begun must be whole soon, and an answer that nobody takes ends the connection. What a reader has not taken
//! stands in a buffer of hyper's and one of the system's, both bounded.

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

use super::Patience;
use crate::{
    error_chain::error_chain,
    http::{Ends, Proven},
};

/// Largest head of a request, in bytes, and most headers: beyond them hyper itself answers 431, or 414 for the
/// target alone, and ends the connection.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// See the module.
pub(super) struct Connection {
    pub(super) service: Router,
    /// Told when a good token came.
    pub(super) proven: Proven,
    pub(super) patience: Patience,
    pub(super) shutdown: CancellationToken,
    pub(super) stop_now: CancellationToken,
}

impl Connection {
    /// Serves it to its end.
    pub(super) async fn serve<S>(self, stream: S, ends: Ends)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let phase = Arc::new(Phase::default());
        let stream = Watched::new(stream, Arc::clone(&phase), self.patience);
        let router = TowerToHyperService::new(self.service);
        let service = Served { router, ends, proven: self.proven, phase };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience.idle)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop_now.cancelled() => return,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = self.stop_now.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            // A client that goes away in the middle is no event of ours.
            tracing::debug!("a connection ended: {}", error_chain(&error));
        }
    }
}

/// What a connection is at.
#[derive(Debug, Default)]
struct Phase(AtomicU8);

impl Phase {
    /// Before the first request was whole.
    const FRESH: u8 = 0;
    /// Between two requests.
    const IDLE: u8 = 1;
    /// A head has begun to come.
    const HEAD: u8 = 2;
    /// A request is being answered, up to the last byte of the answer's body.
    const BUSY: u8 = 3;

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

/// The router, told who is at the other end.
struct Served {
    router: TowerToHyperService<Router>,
    ends: Ends,
    proven: Proven,
    phase: Arc<Phase>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send>>;

impl Service<Request<Incoming>> for Served {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Answering;

    fn call(&self, mut request: Request<Incoming>) -> Answering {
        self.phase.set(Phase::BUSY);
        request.extensions_mut().insert(self.ends);
        request.extensions_mut().insert(self.proven.clone());
        let (answer, phase) = (self.router.call(request), Arc::clone(&self.phase));
        Box::pin(async move { answer.await.map(|answer| answer.map(|body| Body::new(Told { body, phase }))) })
    }
}

/// An answer's body, at whose end the connection is idle again: a stream that lasts for hours is an answer
/// all that time, whatever its reader sends meanwhile.
struct Told {
    body: Body,
    phase: Arc<Phase>,
}

impl hyper::body::Body for Told {
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

impl Drop for Told {
    /// hyper drops a body once it has all of it, or needs none.
    fn drop(&mut self) {
        self.phase.set(Phase::IDLE);
    }
}

/// A stream that gives up on a side that is too slow.
struct Watched<S> {
    stream: S,
    phase: Arc<Phase>,
    /// When the head that is being read began.
    begun: Option<Instant>,
    /// Until the first request is whole.
    first: Timer,
    opened: Instant,
    head: Timer,
    stalled: Timer,
}

impl<S> Watched<S> {
    fn new(stream: S, phase: Arc<Phase>, patience: Patience) -> Self {
        let (head, stalled) = (Timer::new(patience.head), Timer::new(patience.stalled));
        let (first, opened) = (Timer::new(patience.first), Instant::now());
        Self { stream, phase, begun: None, first, opened, head, stalled }
    }
}

/// A limit that is only looked at while somebody waits.
struct Timer {
    within: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl Timer {
    const fn new(within: Duration) -> Self {
        Self { within, sleep: None, is_set: false }
    }

    /// Ready once the limit has passed since `since`, or since the first poll after [`Self::stop`].
    fn poll(&mut self, cx: &mut Context<'_>, since: Option<Instant>) -> Poll<()> {
        let until = since.unwrap_or_else(Instant::now) + self.within;
        if !self.is_set {
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(until),
                None => self.sleep = Some(Box::pin(sleep_until(until))),
            }
            self.is_set = true;
        }
        self.sleep.as_mut().map_or(Poll::Pending, |sleep| sleep.as_mut().poll(cx))
    }

    const fn stop(&mut self) {
        self.is_set = false;
    }
}

fn too_slow(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.phase.get() == Phase::FRESH {
            let opened = self.opened;
            let late = match &read {
                Poll::Ready(_) => opened.elapsed() >= self.first.within,
                Poll::Pending => self.first.poll(cx, Some(opened)).is_ready(),
            };
            return if late { Poll::Ready(Err(too_slow("no request came"))) } else { read };
        }
        if buf.filled().len() > before && self.phase.get() == Phase::IDLE {
            self.phase.set(Phase::HEAD);
            self.begun = Some(Instant::now());
            self.head.stop();
        }
        if self.phase.get() != Phase::HEAD {
            return read;
        }
        // A head that comes in one piece, as nearly all do, never touches the timer.
        let begun = self.begun;
        let late = match &read {
            Poll::Ready(_) => begun.is_some_and(|begun| begun.elapsed() >= self.head.within),
            Poll::Pending => self.head.poll(cx, begun).is_ready(),
        };
        if late { Poll::Ready(Err(too_slow("the head of a request came too slowly"))) } else { read }
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    /// Passes on what a write gave, and ends a wait that lasts too long.
    fn written<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled.stop();
            return wrote;
        }
        ready!(self.stalled.poll(cx, None));
        Poll::Ready(Err(too_slow("nobody reads the answer")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.written(cx, shut)
    }
}
