//! The server itself: routes, keys, the record of what was asked, and its end.

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
use docket_schema::message::{ModelRef, Usage};
use docket_worker::model::{
    Attempt, FaultKind, LEFT_OUT_MARK, ModelError, Provider, ScriptedModel, Transcript,
};
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{
    anthropic, check, check_responses, openai,
    reply::{Refusal, stream_response, until_stopped, whole_response},
    responses,
};

/// Largest request that is read: more than any conversation of a test.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Requests that are kept with their bytes; the first ones are, and all are counted.
const REQUESTS_KEPT_MAX: usize = 4096;

/// A request as it arrived, whatever became of it.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Which protocol was spoken.
    pub provider: Provider,
    /// The exact body.
    pub body: Bytes,
    /// When it had arrived.
    pub received_at: Instant,
    /// When the last byte of the answer was handed to the network; `None` for refusals and broken answers.
    pub answered_at: Option<Instant>,
}

/// A running model server on loopback. Dropped, it stops without waiting for its end.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    scripts: Scripts,
    /// Keys that are taken; an empty one is none.
    keys: Mutex<Vec<String>>,
    requests: Mutex<Vec<RecordedRequest>>,
    calls: AtomicU64,
    connections: AtomicU64,
    /// It counts what an earlier request began with as read from its cache.
    caches: AtomicBool,
    /// Sendings of one turn of one conversation: faults befall the first of them.
    attempts: Mutex<HashMap<blake3::Hash, u32>>,
    stopped: watch::Receiver<bool>,
}

#[derive(Debug)]
enum Scripts {
    AnyModel(ScriptedModel),
    ByModel(BTreeMap<String, ScriptedModel>),
}

/// The one protocol that a route speaks.
#[derive(Debug, Clone, Copy)]
enum Speaks {
    Anthropic,
    OpenAi,
    Responses,
}

impl ModelServer {
    /// The only key that is taken, unless others are named.
    pub const KEY: &str = "sk-scripted-0123456789";

    /// Starts a server that plays `script`, whatever model is asked for.
    ///
    /// # Errors
    /// When no port can be had on loopback.
    pub async fn start(script: ScriptedModel) -> io::Result<Self> {
        Self::launch(Scripts::AnyModel(script)).await
    }

    /// Starts a server with a script for each model's name; any other name is refused.
    ///
    /// # Errors
    /// When no port can be had on loopback.
    pub async fn start_by_model(scripts: BTreeMap<String, ScriptedModel>) -> io::Result<Self> {
        Self::launch(Scripts::ByModel(scripts)).await
    }

    /// From here on what a request has in common with the beginning of an earlier one is counted as read from
    /// the provider's cache.
    pub fn caches(&self) {
        self.shared.caches.store(true, Ordering::SeqCst);
    }

    /// This key is taken too; the empty one by servers that want none.
    pub fn takes_key(&self, key: &str) {
        lock(&self.shared.keys).push(key.to_owned());
    }

    async fn launch(scripts: Scripts) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            scripts,
            keys: Mutex::new(vec![Self::KEY.to_owned()]),
            requests: Mutex::default(),
            calls: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            caches: AtomicBool::new(false),
            attempts: Mutex::default(),
            stopped: stopped.clone(),
        });
        let router = Router::new()
            .route(
                "/v1/messages",
                post(|state, headers, body| answer(Speaks::Anthropic, state, headers, body)),
            )
            .route(
                "/v1/chat/completions",
                post(|state, headers, body| answer(Speaks::OpenAi, state, headers, body)),
            )
            .route(
                "/v1/responses",
                post(|state, headers, body| answer(Speaks::Responses, state, headers, body)),
            )
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&shared));
        let counter = Arc::clone(&shared);
        let listener = listener.tap_io(move |stream| {
            counter.connections.fetch_add(1, Ordering::SeqCst);
            // Without it the last small frame of an answer waits for an acknowledgement.
            drop(stream.set_nodelay(true));
        });
        let served = axum::serve(listener, router).with_graceful_shutdown(until_stopped(stopped));
        let task = tokio::spawn(served.into_future());
        Ok(Self { address, shared, stop, task })
    }

    /// Where `provider`'s protocol is spoken: what `--base-url` takes.
    pub fn base_url(&self, provider: Provider) -> String {
        match provider {
            Provider::Anthropic => format!("http://{}", self.address),
            Provider::OpenAi | Provider::OpenAiResponses | Provider::Scripted => {
                format!("http://{}/v1", self.address)
            }
        }
    }

    /// A model of this server.
    pub fn model(&self, provider: Provider, name: &str) -> ModelRef {
        ModelRef {
            provider: provider.name().to_owned(),
            name: name.to_owned(),
            base_url: Some(self.base_url(provider)),
        }
    }

    /// The requests so far, in the order of their arrival; at most 4096 are kept.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.requests).clone()
    }

    /// How many requests arrived.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// How many connections were accepted: a client that reuses its own needs one.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Stops, and waits until every answer in flight has ended. Stalled answers end at once.
    ///
    /// # Errors
    /// When the server had failed.
    pub async fn shutdown(self) -> io::Result<()> {
        self.stop.send_replace(true);
        self.task.await.map_err(io::Error::other)?
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole after every statement, so a panic elsewhere leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Speaks {
    const fn provider(self) -> Provider {
        match self {
            Self::Anthropic => Provider::Anthropic,
            Self::OpenAi => Provider::OpenAi,
            Self::Responses => Provider::OpenAiResponses,
        }
    }

    fn refusal(self, status: u16, message: &str) -> Refusal {
        match self {
            Self::Anthropic => anthropic::refusal(status, message),
            Self::OpenAi | Self::Responses => openai::refusal(status, message),
        }
    }

    /// Checks the headers as strictly as the provider does.
    fn admits(self, keys: &Mutex<Vec<String>>, headers: &HeaderMap) -> Result<(), Refusal> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let key = match self {
            Self::Anthropic => header("x-api-key"),
            Self::OpenAi | Self::Responses => {
                header("authorization").strip_prefix("Bearer ").unwrap_or_default()
            }
        };
        if !lock(keys).iter().any(|taken| taken == key) {
            // Echoing the key is what some proxies do; the client has to strike it out.
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

async fn answer(
    speaks: Speaks,
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let number = shared.calls.fetch_add(1, Ordering::SeqCst);
    let request_id = format!("req_{number}");
    let place = shared.record(speaks, &body);
    match reply(speaks, &shared, &headers, &body, &request_id, place).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(&request_id),
    }
}

async fn reply(
    speaks: Speaks,
    shared: &Arc<Shared>,
    headers: &HeaderMap,
    body: &Bytes,
    request_id: &str,
    place: Option<usize>,
) -> Result<Response<Body>, Refusal> {
    speaks.admits(&shared.keys, headers)?;
    let value: Value =
        serde_json::from_slice(body).map_err(|error| speaks.refusal(400, &format!("no JSON: {error}")))?;
    let checked = match speaks {
        Speaks::Anthropic => check::anthropic(&value),
        Speaks::OpenAi => check::openai(&value),
        Speaks::Responses => check_responses::responses(&value),
    };
    checked.map_err(|message| speaks.refusal(400, &message))?;
    let model = value["model"].as_str().unwrap_or_default();
    let script = match &shared.scripts {
        Scripts::AnyModel(script) => script,
        Scripts::ByModel(scripts) => {
            scripts.get(model).ok_or_else(|| speaks.refusal(404, &format!("model: {model}")))?
        }
    };
    let attempt = shared.attempt(&value, body);
    let mut line = script.line(body, attempt).map_err(|error| match error {
        ModelError::InvalidRequest { message } => speaks.refusal(400, &message),
        other => speaks.refusal(500, &other.to_string()),
    })?;
    if !line.delay.is_zero() {
        tokio::time::sleep(line.delay).await;
    }
    if let Some(fault) = line.fault {
        if fault.kind == FaultKind::SlowFirstByte {
            until_stopped(shared.stopped.clone()).await;
        }
        let refusal = match speaks {
            Speaks::Anthropic => anthropic::fault(fault),
            Speaks::OpenAi | Speaks::Responses => openai::fault(fault),
        };
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
    }
    shared.cached(body, place, &mut line.answer.usage);
    if line.fault.is_some_and(|fault| fault.kind == FaultKind::Uncounted) {
        line.answer.usage = Usage::default();
    }
    if line.fault.is_some_and(|fault| fault.kind == FaultKind::Unstreamed) {
        let body = match speaks {
            Speaks::Anthropic => anthropic::whole(&line.answer, model, request_id),
            Speaks::OpenAi => openai::whole(&line.answer, model, request_id),
            Speaks::Responses => responses::whole(&line.answer, model, request_id),
        };
        shared.answered(place, Instant::now());
        return Ok(whole_response(&body, request_id));
    }
    let events = match speaks {
        Speaks::Anthropic => anthropic::events(&line.answer, model, request_id),
        Speaks::OpenAi => openai::events(&line.answer, model, request_id),
        Speaks::Responses => responses::events(&line.answer, model, request_id),
    };
    let recorder = Arc::clone(shared);
    let on_sent = Arc::new(move |at| recorder.answered(place, at));
    Ok(stream_response(events, line.fault, request_id, shared.stopped.clone(), on_sent))
}

impl Shared {
    /// Keeps the request; its place, where it is one of those that are kept.
    fn record(&self, speaks: Speaks, body: &Bytes) -> Option<usize> {
        let mut requests = lock(&self.requests);
        (requests.len() < REQUESTS_KEPT_MAX).then(|| {
            requests.push(RecordedRequest {
                provider: speaks.provider(),
                body: body.clone(),
                received_at: Instant::now(),
                answered_at: None,
            });
            requests.len() - 1
        })
    }

    fn cached(&self, body: &Bytes, place: Option<usize>, usage: &mut Usage) {
        if !self.caches.load(Ordering::SeqCst) {
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

    fn answered(&self, place: Option<usize>, at: Instant) {
        if let Some(place) = place
            && let Some(request) = lock(&self.requests).get_mut(place)
        {
            request.answered_at = Some(at);
        }
    }

    /// Counts the sendings of one turn. A conversation is known by its model and first messages, so
    /// that an empty answer which is asked again with a nudge counts as the same turn's next attempt.
    fn attempt(&self, value: &Value, body: &[u8]) -> Attempt {
        let turn = Transcript::read(body).map_or(0, |transcript| transcript.answers);
        let messages =
            value["messages"].as_array().or(value["input"].as_array()).map(Vec::as_slice).unwrap_or_default();
        let first = messages.iter().find(|message| message["role"] == "user");
        // The first block is the task; the cache mark moves on, and what a person adds comes behind.
        let task = first.map(|message| match &message["content"] {
            Value::Array(blocks) => blocks.first().map_or(&Value::Null, |block| &block["text"]),
            content => content,
        });
        // Where the protocol has one text for all, a ledger may have come behind the task.
        let task = task.and_then(Value::as_str).and_then(|text| text.split(LEFT_OUT_MARK).next());
        let mut hasher = blake3::Hasher::new();
        hasher.update(value["model"].to_string().as_bytes());
        hasher.update(task.unwrap_or_default().trim_end().as_bytes());
        hasher.update(&turn.to_le_bytes());
        let mut attempts = lock(&self.attempts);
        let count = attempts.entry(hasher.finalize()).or_insert(0);
        *count += 1;
        Attempt(*count)
    }
}
