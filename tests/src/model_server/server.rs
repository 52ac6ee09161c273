//! The server: routes, keys, recorded requests, shutdown.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Response},
    routing::post,
    serve::ListenerExt as _,
};
use docket_schema::message::{ModelRef, TokenUsage};
use docket_worker::model::{
    AttemptNumber, FaultKind, ModelError, ModelProvider, OMITTED_REPLIES_MARK, RequestTranscript,
    ScriptedModel,
};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    anthropic, openai,
    reply::{RefusalReply, json_response, stream_response, wait_until_stopped},
    request_check, responses, responses_check,
};

/// Maximum size of a request: larger than any conversation of a test.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of requests recorded with their bodies. The first ones are recorded; all are
/// counted.
const RECORDED_REQUESTS_MAX: usize = 4096;

/// A request as it arrived, whatever its result.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The protocol of the request.
    pub provider: ModelProvider,
    pub body: Bytes,
    /// Time of arrival.
    pub received_at: Instant,
    /// Time at which the last byte of the response was handed to the network; `None` for refusals and
    /// broken responses.
    pub answered_at: Option<Instant>,
}

/// A running model server on loopback. When dropped, it stops without waiting for requests in
/// flight.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<ServerState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

#[derive(Debug)]
struct ServerState {
    scripts: ServerScripts,
    /// Accepted keys; an empty one means no key.
    keys: Mutex<Vec<String>>,
    requests: Mutex<Vec<RecordedRequest>>,
    calls: AtomicU64,
    connections: AtomicU64,
    /// Whether the prefix shared with an earlier request is reported as read from the cache.
    reports_cache: AtomicBool,
    /// Number of attempts per turn of a conversation: faults hit the first of them.
    attempts: Mutex<HashMap<blake3::Hash, u32>>,
    stopped: watch::Receiver<bool>,
}

#[derive(Debug)]
enum ServerScripts {
    AnyModel(ScriptedModel),
    ByModel(BTreeMap<String, ScriptedModel>),
}

/// The protocol of a route.
#[derive(Debug, Clone, Copy)]
enum ModelProtocol {
    Anthropic,
    OpenAi,
    Responses,
}

impl ModelServer {
    /// The only accepted key, unless others are added.
    pub const DEFAULT_KEY: &str = "sk-scripted-0123456789";

    /// Starts a server that plays `script` for any model.
    ///
    /// # Errors
    /// Returns an error if no port is available on loopback.
    pub async fn start(script: ScriptedModel) -> io::Result<Self> {
        Self::launch(ServerScripts::AnyModel(script)).await
    }

    /// Starts a server with one script per model name; any other name is refused.
    ///
    /// # Errors
    /// Returns an error if no port is available on loopback.
    pub async fn start_by_model(scripts: BTreeMap<String, ScriptedModel>) -> io::Result<Self> {
        Self::launch(ServerScripts::ByModel(scripts)).await
    }

    /// From now on, reports the prefix that a request shares with an earlier one as read from the provider's
    /// cache.
    pub fn enable_cache_reporting(&self) {
        self.state.reports_cache.store(true, Ordering::SeqCst);
    }

    /// Accepts another key; the empty one is for servers that require none.
    pub fn accept_key(&self, key: &str) {
        lock(&self.state.keys).push(key.to_owned());
    }

    async fn launch(scripts: ServerScripts) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(ServerState {
            scripts,
            keys: Mutex::new(vec![Self::DEFAULT_KEY.to_owned()]),
            requests: Mutex::default(),
            calls: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            reports_cache: AtomicBool::new(false),
            attempts: Mutex::default(),
            stopped: stopped.clone(),
        });
        let router = Router::new()
            .route(
                "/v1/messages",
                post(|state, headers, body| handle_request(ModelProtocol::Anthropic, state, headers, body)),
            )
            .route(
                "/v1/chat/completions",
                post(|state, headers, body| handle_request(ModelProtocol::OpenAi, state, headers, body)),
            )
            .route(
                "/v1/responses",
                post(|state, headers, body| handle_request(ModelProtocol::Responses, state, headers, body)),
            )
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&shared));
        let counter = Arc::clone(&shared);
        let listener = listener.tap_io(move |stream| {
            counter.connections.fetch_add(1, Ordering::SeqCst);
            // Without it, the last small frame of a response waits for an acknowledgement.
            drop(stream.set_nodelay(true));
        });
        let served = axum::serve(listener, router).with_graceful_shutdown(wait_until_stopped(stopped));
        let task = tokio::spawn(served.into_future());
        Ok(Self { address, state: shared, stop, task })
    }

    /// Returns the base URL for `provider`'s protocol, as `--base-url` takes it.
    pub fn base_url(&self, provider: ModelProvider) -> String {
        match provider {
            ModelProvider::Anthropic => format!("http://{}", self.address),
            ModelProvider::OpenAi | ModelProvider::OpenAiResponses | ModelProvider::Scripted => {
                format!("http://{}/v1", self.address)
            }
        }
    }

    /// Returns a reference to a model of this server.
    pub fn model_ref(&self, provider: ModelProvider, name: &str) -> ModelRef {
        ModelRef {
            provider: provider.name().to_owned(),
            name: name.to_owned(),
            base_url: Some(self.base_url(provider)),
        }
    }

    /// Returns the requests so far, in order of arrival; at most 4096 are recorded.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.state.requests).clone()
    }

    /// Returns the number of requests that arrived.
    pub fn call_count(&self) -> u64 {
        self.state.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of accepted connections: a client that reuses its connection needs one.
    pub fn connection_count(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Stops, and waits until every response in flight has ended. Stalled responses end at once.
    ///
    /// # Errors
    /// Returns an error if the server had failed.
    pub async fn shutdown(self) -> io::Result<()> {
        self.stop.send_replace(true);
        self.task.await.map_err(io::Error::other)?
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent after every statement, so a panic elsewhere leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelProtocol {
    const fn provider(self) -> ModelProvider {
        match self {
            Self::Anthropic => ModelProvider::Anthropic,
            Self::OpenAi => ModelProvider::OpenAi,
            Self::Responses => ModelProvider::OpenAiResponses,
        }
    }

    fn refusal(self, status: u16, message: &str) -> RefusalReply {
        match self {
            Self::Anthropic => anthropic::refusal(status, message),
            Self::OpenAi | Self::Responses => openai::refusal(status, message),
        }
    }

    /// Checks the headers as strictly as the provider does.
    fn check_headers(self, keys: &Mutex<Vec<String>>, headers: &HeaderMap) -> Result<(), RefusalReply> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let key = match self {
            Self::Anthropic => header("x-api-key"),
            Self::OpenAi | Self::Responses => {
                header("authorization").strip_prefix("Bearer ").unwrap_or_default()
            }
        };
        if !lock(keys).iter().any(|taken| taken == key) {
            // Some proxies echo the key; the client has to redact it.
            return Err(self.refusal(401, &format!("incorrect API key provided: {key}")));
        }
        if header("content-type") != "application/json" {
            return Err(self.refusal(400, "content-type: must be application/json"));
        }
        if matches!(self, Self::Anthropic) && header("anthropic-version").is_empty() {
            return Err(self.refusal(400, "anthropic-version: header is required"));
        }
        Ok(())
    }
}

async fn handle_request(
    speaks: ModelProtocol,
    State(shared): State<Arc<ServerState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let number = shared.calls.fetch_add(1, Ordering::SeqCst);
    let request_id = format!("req_{number}");
    let place = shared.record_request(speaks, &body);
    match build_reply(speaks, &shared, &headers, &body, &request_id, place).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(&request_id),
    }
}

async fn build_reply(
    speaks: ModelProtocol,
    shared: &Arc<ServerState>,
    headers: &HeaderMap,
    body: &Bytes,
    request_id: &str,
    place: Option<usize>,
) -> Result<Response<Body>, RefusalReply> {
    speaks.check_headers(&shared.keys, headers)?;
    let value: Value =
        serde_json::from_slice(body).map_err(|error| speaks.refusal(400, &format!("no JSON: {error}")))?;
    let checked = match speaks {
        ModelProtocol::Anthropic => request_check::check_anthropic(&value),
        ModelProtocol::OpenAi => request_check::check_openai(&value),
        ModelProtocol::Responses => responses_check::check_responses(&value),
    };
    checked.map_err(|message| speaks.refusal(400, &message))?;
    let model = value["model"].as_str().unwrap_or_default();
    let script = match &shared.scripts {
        ServerScripts::AnyModel(script) => script,
        ServerScripts::ByModel(scripts) => {
            scripts.get(model).ok_or_else(|| speaks.refusal(404, &format!("model: {model}")))?
        }
    };
    let attempt = shared.next_attempt(&value, body);
    let mut line = script.scripted_reply(body, attempt).map_err(|error| match error {
        ModelError::InvalidRequest { message } => speaks.refusal(400, &message),
        other => speaks.refusal(500, &other.to_string()),
    })?;
    if !line.delay.is_zero() {
        tokio::time::sleep(line.delay).await;
    }
    if let Some(fault) = line.fault {
        if fault.kind == FaultKind::SlowFirstByte {
            wait_until_stopped(shared.stopped.clone()).await;
        }
        let refusal = match speaks {
            ModelProtocol::Anthropic => anthropic::fault_refusal(fault),
            ModelProtocol::OpenAi | ModelProtocol::Responses => openai::fault_refusal(fault),
        };
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
    }
    shared.add_cached_usage(body, place, &mut line.reply.usage);
    if line.fault.is_some_and(|fault| fault.kind == FaultKind::Uncounted) {
        line.reply.usage = TokenUsage::default();
    }
    if line.fault.is_some_and(|fault| fault.kind == FaultKind::Unstreamed) {
        let body = match speaks {
            ModelProtocol::Anthropic => anthropic::full_response(&line.reply, model, request_id),
            ModelProtocol::OpenAi => openai::full_response(&line.reply, model, request_id),
            ModelProtocol::Responses => responses::full_response(&line.reply, model, request_id),
        };
        shared.record_reply_time(place, Instant::now());
        return Ok(json_response(&body, request_id));
    }
    let events = match speaks {
        ModelProtocol::Anthropic => anthropic::stream_events(&line.reply, model, request_id),
        ModelProtocol::OpenAi => openai::stream_events(&line.reply, model, request_id),
        ModelProtocol::Responses => responses::stream_events(&line.reply, model, request_id),
    };
    let recorder = Arc::clone(shared);
    let on_sent = Arc::new(move |at| recorder.record_reply_time(place, at));
    Ok(stream_response(events, line.fault, request_id, shared.stopped.clone(), on_sent))
}

impl ServerState {
    /// Records the request; returns its index if there was space.
    fn record_request(&self, speaks: ModelProtocol, body: &Bytes) -> Option<usize> {
        let mut requests = lock(&self.requests);
        (requests.len() < RECORDED_REQUESTS_MAX).then(|| {
            requests.push(RecordedRequest {
                provider: speaks.provider(),
                body: body.clone(),
                received_at: Instant::now(),
                answered_at: None,
            });
            requests.len() - 1
        })
    }

    fn add_cached_usage(&self, body: &Bytes, place: Option<usize>, usage: &mut TokenUsage) {
        if !self.reports_cache.load(Ordering::SeqCst) {
            return;
        }
        let requests = lock(&self.requests);
        let before = &requests[..place.unwrap_or(requests.len())];
        let shared = |earlier: &RecordedRequest| {
            earlier.body.iter().zip(body).take_while(|(one, other)| one == other).count()
        };
        let bytes = before.iter().map(shared).max().unwrap_or(0);
        usage.cache_read_tokens = usage.input_tokens * bytes as u64 / body.len().max(1) as u64;
        usage.input_tokens -= usage.cache_read_tokens;
    }

    fn record_reply_time(&self, place: Option<usize>, at: Instant) {
        if let Some(place) = place
            && let Some(request) = lock(&self.requests).get_mut(place)
        {
            request.answered_at = Some(at);
        }
    }

    /// Counts the attempts of one turn. Model and first messages identify a conversation, so that a
    /// retry with a nudge after an empty reply counts as the next attempt of the same turn.
    fn next_attempt(&self, value: &Value, body: &[u8]) -> AttemptNumber {
        let turn = RequestTranscript::from_body(body).map_or(0, |transcript| transcript.reply_count);
        let messages =
            value["messages"].as_array().or(value["input"].as_array()).map(Vec::as_slice).unwrap_or_default();
        let first = messages.iter().find(|message| message["role"] == "user");
        // The first block is the task; the cache mark moves, and a person's messages come after it.
        let task = first.map(|message| match &message["content"] {
            Value::Array(blocks) => blocks.first().map_or(&Value::Null, |block| &block["text"]),
            content => content,
        });
        // In a protocol with a single text, a ledger may follow the task.
        let task = task.and_then(Value::as_str).and_then(|text| text.split(OMITTED_REPLIES_MARK).next());
        let mut hasher = blake3::Hasher::new();
        hasher.update(value["model"].to_string().as_bytes());
        hasher.update(task.unwrap_or_default().trim_end().as_bytes());
        hasher.update(&turn.to_le_bytes());
        let mut attempts = lock(&self.attempts);
        let count = attempts.entry(hasher.finalize()).or_insert(0);
        *count += 1;
        AttemptNumber(*count)
    }
}
