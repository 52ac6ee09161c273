//! A proxy between a worker and the coordinators, like a load balancer: it forwards each request to a
//! randomly drawn coordinator and records acknowledgements on the way back.
//!
//! It stores and repairs nothing: if no coordinator responds, or one dies in the middle of its response, the
//! connection breaks. A request goes to another coordinator only if the first did not accept a connection.
//! Invariant: an acknowledgement is recorded before its first byte is forwarded.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request, State},
    http::{Method, Response, header},
};
use docket_schema::{
    api::{
        AppendRequest, AppendResponse, HeartbeatRequest, HeartbeatResponse, LeaseRequest, LeaseResponse,
        ProblemDetails,
    },
    ids::RunId,
};
use futures_util::stream;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{
    acknowledgements::{AckedAppend, AckedLease, AckedRenewal, Acknowledged},
    fault_plan::SeededRandom,
};

/// Maximum size of a forwarded body.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What all proxies together have recorded.
#[derive(Debug, Clone, Default)]
pub struct ProxyRecording {
    inner: Arc<Mutex<RecordedTraffic>>,
}

#[derive(Debug, Clone, Default)]
struct RecordedTraffic {
    /// A clock that ticks for each recorded request or response.
    ticks: u64,
    acknowledged: Acknowledged,
    refusals: BTreeMap<String, usize>,
    /// Messages that could not be parsed: a proxy that misses acknowledgements checks nothing.
    unreadable: Vec<String>,
}

impl ProxyRecording {
    fn lock(&self) -> MutexGuard<'_, RecordedTraffic> {
        // The data is consistent after every statement, so a panic elsewhere leaves nothing half-done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the acknowledgements so far.
    ///
    /// # Errors
    /// Returns an error if a message could not be parsed.
    pub fn acknowledged(&self) -> Result<Acknowledged> {
        let passed = self.lock();
        anyhow::ensure!(passed.unreadable.is_empty(), "not understood: {:?}", passed.unreadable);
        Ok(passed.acknowledged.clone())
    }

    /// Returns how often calls were refused, by code.
    pub fn refusals(&self) -> BTreeMap<String, usize> {
        self.lock().refusals.clone()
    }

    fn next_tick(&self) -> u64 {
        let mut passed = self.lock();
        passed.ticks += 1;
        passed.ticks
    }

    fn record_exchange(&self, asked: u64, path: &str, request: &[u8], is_good: bool, answer: &[u8]) {
        if !is_good {
            if let Ok(problem) = serde_json::from_slice::<ProblemDetails>(answer) {
                *self.lock().refusals.entry(format!("{:?}", problem.code)).or_default() += 1;
            }
            return;
        }
        let noted = if path == "/v1/lease" {
            parse_leases(request, answer, self.next_tick())
                .map(|mut new| self.lock().acknowledged.leases.append(&mut new))
        } else if path == "/v1/heartbeat" {
            parse_renewals(request, answer, asked)
                .map(|mut new| self.lock().acknowledged.renewals.append(&mut new))
        } else {
            parse_append(path, request, answer).map(|append| self.lock().acknowledged.appends.push(append))
        };
        if let Err(error) = noted {
            self.lock().unreadable.push(format!("{path}: {error:#}"));
        }
    }
}

fn parse_renewals(request: &[u8], answer: &[u8], asked: u64) -> Result<Vec<AckedRenewal>> {
    let held = serde_json::from_slice::<HeartbeatRequest>(request)?.held.into_iter();
    let renewed = serde_json::from_slice::<HeartbeatResponse>(answer)?.renewed;
    let still = held.filter(|held| renewed.contains(&held.task));
    Ok(still.map(|held| AckedRenewal { task: held.task, epoch: held.epoch, requested_at: asked }).collect())
}

fn parse_leases(request: &[u8], answer: &[u8], told: u64) -> Result<Vec<AckedLease>> {
    let worker = serde_json::from_slice::<LeaseRequest>(request)?.incarnation;
    let leases = serde_json::from_slice::<LeaseResponse>(answer)?.leases.into_iter();
    Ok(leases
        .map(|lease| AckedLease {
            task: lease.task,
            epoch: lease.epoch,
            run: lease.run,
            worker,
            acknowledged_at: told,
        })
        .collect())
}

fn parse_append(path: &str, request: &[u8], answer: &[u8]) -> Result<AckedAppend> {
    let run: RunId = run_in_path(path).context("a run's id")?.parse()?;
    let request: AppendRequest = serde_json::from_slice(request)?;
    let answer: AppendResponse = serde_json::from_slice(answer)?;
    let AppendRequest { expected_seq, epoch, events, .. } = request;
    Ok(AckedAppend { run, epoch, after: expected_seq, events, head: answer.head })
}

fn run_in_path(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/runs/")?.strip_suffix("/append")
}

/// A recording proxy; see the module. Ends when dropped.
#[derive(Debug)]
pub struct RecordingProxy {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ProxyState {
    coordinators: Vec<String>,
    http: reqwest::Client,
    random: Mutex<SeededRandom>,
    recording: ProxyRecording,
}

impl RecordingProxy {
    /// Starts a proxy at `ip` in front of `coordinators` (`http://HOST:PORT`).
    ///
    /// # Errors
    /// Returns an error if it cannot listen there.
    pub async fn start(
        ip: IpAddr,
        coordinators: Vec<String>,
        seed: u64,
        seen: ProxyRecording,
    ) -> Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await.with_context(|| format!("listen at {ip}"))?;
        let address = listener.local_addr()?;
        // Unused, because coordinators are on loopback. A second installation is refused and the first
        // stays in effect.
        drop(rustls::crypto::ring::default_provider().install_default());
        // Never retry a request that was sent: reqwest would do so on a connection that was closed while
        // idle.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
        let between = Arc::new(ProxyState {
            coordinators,
            http,
            random: Mutex::new(SeededRandom::new(seed)),
            recording: seen,
        });
        let router = Router::new()
            .fallback(proxy_request)
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(between);
        let served = axum::serve(listener, router);
        Ok(Self { address, task: tokio::spawn(served.into_future()) })
    }

    /// Returns the URL for workers.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn proxy_request(State(between): State<Arc<ProxyState>>, request: Request) -> Response<Body> {
    between.forward_request(request).await.unwrap_or_else(|_| aborted_response())
}

/// A response that breaks off before it is complete.
fn aborted_response() -> Response<Body> {
    let broken: io::Result<Bytes> = Err(io::ErrorKind::ConnectionReset.into());
    let mut response = Response::new(Body::from_stream(stream::iter([broken])));
    response.headers_mut().insert(header::CONTENT_LENGTH, header::HeaderValue::from_static("1"));
    response
}

impl ProxyState {
    async fn forward_request(&self, request: Request) -> Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await?;
        let path = parts.uri.path().to_owned();
        let place = parts.uri.path_and_query().map_or("/", |both| both.as_str());
        let is_told = ["/v1/lease", "/v1/heartbeat"].contains(&path.as_str()) || run_in_path(&path).is_some();
        let is_noted = parts.method == Method::POST && is_told;
        let asked = self.recording.next_tick();
        let first = {
            let mut draws = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            draws.next_below(self.coordinators.len())
        };
        let mut answer = None;
        for n in 0..self.coordinators.len() {
            let to = &self.coordinators[(first + n) % self.coordinators.len()];
            let mut headers = parts.headers.clone();
            headers.remove(header::HOST);
            let request = self.http.request(parts.method.clone(), format!("{to}{place}"));
            match request.headers(headers).body(body.clone()).send().await {
                Err(error) if error.is_connect() => {}
                sent => {
                    answer = Some(sent?);
                    break;
                }
            }
        }
        let answer = answer.context("no coordinator accepts a connection")?;
        let status = answer.status();
        let mut response = Response::builder().status(status);
        for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
            if let Some(value) = answer.headers().get(&name) {
                response = response.header(name, value);
            }
        }
        if !is_noted && status.is_success() {
            return Ok(response.body(Body::from_stream(answer.bytes_stream()))?);
        }
        let bytes = answer.bytes().await?;
        if is_noted || !status.is_success() {
            self.recording.record_exchange(asked, &path, &body, status.is_success(), &bytes);
        }
        Ok(response.body(Body::from(bytes))?)
    }
}
