//! The HTTP client for model servers. One call is one request: nothing is retried here; the run loop waits
//! and records each failure. No log line, error or event contains a key, a prompt or a reply.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use docket_schema::message::ModelRef;
use reqwest::{
    Response, Url,
    header::{HeaderMap, HeaderValue},
};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    Secret,
    classify::{ProviderErrorResponse, classify_error, retry_after_header_ms},
    error::{ERROR_BODY_BYTES_MAX, ModelError, TimeoutKind},
    provider_protocol::{ModelProvider, ProviderProtocol, StreamDecoder},
    reply::{ModelReply, OnDelta, ReplyDelta},
    request::{RenderError, RenderedRequest},
    scripted::{AttemptNumber, ScriptedModel},
    server_allowlist::{ServerTrust, redact_server_message, server_trust},
    stream_decoder::StreamError,
};
use crate::sse::SseParser;

/// Anthropic's own address.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";
/// OpenAI's own address.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Longest wait for a connection; after it the host counts as unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the first byte: a long prompt on a busy model, or a local model that is still loading,
/// takes minutes.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest pause within a reply: providers send keep-alives about every 15 s.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest reply, in bytes of the stream: a hundred times what the largest output limit needs.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long to wait for the end of the stream after a complete reply: usage may follow, but need not.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(5);
/// How many times the first-byte timeout a server may send keep-alives before its reply begins.
const QUEUED_TIMEOUT_FACTOR: u32 = 5;
/// Longest time until the first sign of life of a call's reply, according to the limits above. A scripted
/// model's delay ([`super::scripted::DELAY_MS_MAX`]) is shorter.
pub const FIRST_EVENT_TIME_MAX: Duration =
    CONNECT_TIMEOUT.saturating_add(FIRST_BYTE_TIMEOUT.saturating_mul(QUEUED_TIMEOUT_FACTOR));
/// How long to wait for the end of a finished stream, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(20);

/// Timeouts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// For connecting.
    pub connect: Duration,
    /// From sending the request to the first byte of the reply's body.
    pub first_byte: Duration,
    /// Between bytes.
    pub idle: Duration,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self { connect: CONNECT_TIMEOUT, first_byte: FIRST_BYTE_TIMEOUT, idle: IDLE_TIMEOUT }
    }
}

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ModelClientError {
    /// The protocol is not supported.
    #[error(transparent)]
    Provider(#[from] RenderError),
    /// The address is invalid.
    #[error("`{0}` is not an http or https address; check --base-url")]
    InvalidBaseUrl(String),
    /// The server is neither on the worker's allowlist nor on this machine.
    #[error("this worker does not allow the model server `{0}`; its owner can add it to worker.base_urls")]
    ServerNotAllowed(String),
    /// `scripted:NAME` without a script.
    #[error("no script named `{0}`; submit one with the task or use a real model")]
    NoScript(String),
    /// TLS could not be set up.
    #[error("TLS cannot be set up; install the system's CA certificates (package ca-certificates)")]
    Tls(#[source] reqwest::Error),
}

/// A client for one model.
#[derive(Debug)]
pub struct ModelClient {
    transport: ModelTransport,
}

#[derive(Debug)]
enum ModelTransport {
    Http(HttpTransport),
    Scripted(Arc<ScriptedModel>),
}

#[derive(Debug)]
struct HttpTransport {
    http: reqwest::Client,
    protocol: &'static dyn ProviderProtocol,
    url: Url,
    timeouts: ModelTimeouts,
    server_trust: ServerTrust,
    /// Whether the address is the provider's own, where every request needs a key.
    needs_key: bool,
}

impl ModelClient {
    /// Creates a client for `model`, on a worker with this server allowlist. For `http:` no certificates are
    /// loaded, which is most of a client's startup time.
    ///
    /// # Errors
    /// [`ModelClientError`]; a `scripted` model is created with [`ModelClient::scripted`].
    pub fn new(
        model: &ModelRef,
        listed: &[String],
        timeouts: ModelTimeouts,
    ) -> Result<Self, ModelClientError> {
        match ModelProvider::for_model(model)? {
            ModelProvider::Scripted => Err(ModelClientError::NoScript(model.name.clone())),
            provider
            @ (ModelProvider::Anthropic | ModelProvider::OpenAi | ModelProvider::OpenAiResponses) => {
                Self::with_protocol(provider.protocol(), model, listed, timeouts)
            }
        }
    }

    /// Creates a client that uses this protocol for `model`.
    pub(super) fn with_protocol(
        dialect: &'static dyn ProviderProtocol,
        model: &ModelRef,
        listed: &[String],
        timeouts: ModelTimeouts,
    ) -> Result<Self, ModelClientError> {
        let url = endpoint_url(dialect, model.base_url.as_deref())?;
        let own = dialect.base_url();
        let trust = server_trust((model, own), &url, listed)
            .ok_or_else(|| ModelClientError::ServerNotAllowed(model.base_url.clone().unwrap_or_default()))?;
        let http = http_client(&url, timeouts).map_err(ModelClientError::Tls)?;
        let needs_key = model.base_url.is_none();
        Ok(Self {
            transport: ModelTransport::Http(HttpTransport {
                http,
                protocol: dialect,
                url,
                timeouts,
                server_trust: trust,
                needs_key,
            }),
        })
    }

    /// Creates a client that plays `script` in this process.
    pub const fn scripted(script: Arc<ScriptedModel>) -> Self {
        Self { transport: ModelTransport::Scripted(script) }
    }

    /// Sends one request and reads the complete reply. `attempt` counts the attempts of this call from 1;
    /// only scripts use it.
    ///
    /// # Errors
    /// [`ModelError`]; see [`super::next_delay`] for when to retry.
    pub async fn call(
        &self,
        request: &RenderedRequest,
        attempt: AttemptNumber,
        key: Option<&Secret>,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        match &self.transport {
            ModelTransport::Http(end) => Box::pin(end.call(request, key, on_delta)).await,
            ModelTransport::Scripted(script) => script.stream_reply(&request.body, attempt, on_delta).await,
        }
    }
}

fn endpoint_url(dialect: &dyn ProviderProtocol, base_url: Option<&str>) -> Result<Url, ModelClientError> {
    let base = base_url.unwrap_or(dialect.base_url()).trim_end_matches('/');
    let url = Url::parse(&dialect.endpoint_url(base)).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| ModelClientError::InvalidBaseUrl(base.to_owned()))
}

fn http_client(url: &Url, timeouts: ModelTimeouts) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("docket/", env!("CARGO_PKG_VERSION")))
        // A redirect would send the key to another host.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(timeouts.connect)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_max_idle_per_host(1);
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    if url.scheme() == "http" {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        // No root certificates: an accidental TLS connection on this path fails closed.
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("ring supports TLS 1.2 and 1.3")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(tls);
    } else {
        // Fails if another part of the process has installed a provider; that one is then used.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    builder.build()
}

/// Whether the model's address is on this machine. The same address means a different server on another
/// machine.
pub(crate) fn is_on_local_server(model: &ModelRef) -> bool {
    model.base_url.as_deref().and_then(|base| Url::parse(base).ok()).is_some_and(|url| is_loopback(&url))
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl HttpTransport {
    async fn call(
        &self,
        request: &RenderedRequest,
        key: Option<&Secret>,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        // A person who names a server in a task must not obtain the worker's key through it.
        let key = key.filter(|_| self.server_trust == ServerTrust::Full);
        if self.needs_key && key.is_none() {
            let variable = self.protocol.key_variable();
            return Err(ModelError::NoKey { variable });
        }
        let started = Instant::now();
        let response = self.send_request(request.body.clone(), key).await?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let wait = retry_after_header_ms(|name| header_text(response.headers(), name));
            let body = self.read_error_body(response).await;
            let error =
                classify_error(ProviderErrorResponse { status, retry_after_ms: wait, body: &body }, key);
            return Err(self.redact_untrusted(error, status));
        }
        let request_id = ["request-id", "x-request-id"]
            .into_iter()
            .find_map(|name| header_text(response.headers(), name))
            .map(|id| redact_key(&id, key).chars().take(200).collect());
        let kind = header_text(response.headers(), "content-type").unwrap_or_default();
        if kind.starts_with("text/html") {
            return Err(ModelError::Protocol {
                detail: "text/html instead of a stream of events".to_owned(),
            });
        }
        let answer = self.read_stream(response, started, key, on_delta).await;
        let answer = answer.map_err(|error| self.redact_untrusted(error, status))?;
        Ok(ModelReply { provider_request_id: request_id, ..answer })
    }

    /// Redacts an error for the submitter of the task.
    fn redact_untrusted(&self, error: ModelError, status: u16) -> ModelError {
        match self.server_trust {
            ServerTrust::Full => error,
            ServerTrust::Keyless => redact_server_message(error, status),
        }
    }

    async fn send_request(&self, body: Bytes, key: Option<&Secret>) -> Result<Response, ModelError> {
        let mut request =
            self.http.post(self.url.clone()).header("content-type", "application/json").body(body);
        for (name, value) in self.protocol.extra_headers() {
            request = request.header(*name, *value);
        }
        if let Some(key) = key {
            let (name, value) = self.protocol.key_header(key.expose());
            let mut value = HeaderValue::from_str(&value).map_err(|_| ModelError::Unauthorized {
                message: "the key holds characters that no key has".to_owned(),
            })?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        match timeout(self.timeouts.first_byte, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() && error.is_timeout() => {
                Err(timeout_error(TimeoutKind::Connect, self.timeouts.connect))
            }
            Ok(Err(error)) => Err(ModelError::Connect { detail: error_chain(error.without_url()) }),
            Err(_) => Err(timeout_error(TimeoutKind::FirstByte, self.timeouts.first_byte)),
        }
    }

    /// Reads the stored part of an error body. An incomplete body is still useful.
    async fn read_error_body(&self, mut response: Response) -> Vec<u8> {
        // JSON around the message may be longer than the message.
        const READ_MAX: usize = 8 * ERROR_BODY_BYTES_MAX;
        let mut body = Vec::new();
        while body.len() < READ_MAX {
            match timeout(self.timeouts.idle, response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        body
    }

    async fn read_stream(
        &self,
        mut response: Response,
        started: Instant,
        key: Option<&Secret>,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        let mut parser = SseParser::default();
        let mut fold = self.protocol.stream_decoder();
        let mut first_byte_ms = None;
        let mut read = 0;
        // An event stream never starts like a JSON object.
        let mut whole: Option<Vec<u8>> = None;
        let mut blank = true;
        let mut told = false;
        while !fold.is_finished() {
            let (which, limit) = match (first_byte_ms, told) {
                (None, _) => {
                    (TimeoutKind::FirstByte, self.timeouts.first_byte.saturating_sub(started.elapsed()))
                }
                // Only keep-alives, which some servers send while a request is queued.
                (Some(_), false) => {
                    let queued =
                        (self.timeouts.first_byte * QUEUED_TIMEOUT_FACTOR).saturating_sub(started.elapsed());
                    (TimeoutKind::Idle, self.timeouts.idle.min(queued))
                }
                (Some(_), true) if fold.is_complete() => {
                    (TimeoutKind::Idle, self.timeouts.idle.min(STREAM_END_TIMEOUT))
                }
                (Some(_), true) => (TimeoutKind::Idle, self.timeouts.idle),
            };
            let bytes = match timeout(limit, response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => break,
                // A complete reply contains its stop reason even if the connection then broke.
                Ok(Err(_)) => break,
                // The same applies if the server leaves the connection open.
                Err(_) if fold.is_complete() => break,
                Err(_) => {
                    let whole = match which {
                        TimeoutKind::Idle => self.timeouts.idle,
                        TimeoutKind::FirstByte | TimeoutKind::Connect | TimeoutKind::Budget => {
                            self.timeouts.first_byte
                        }
                    };
                    return Err(timeout_error(which, whole));
                }
            };
            first_byte_ms.get_or_insert_with(|| elapsed_ms(started));
            on_delta(ReplyDelta::KeepAlive);
            read += bytes.len();
            if read > REPLY_BYTES_MAX {
                let detail = format!("an answer of more than {REPLY_BYTES_MAX} bytes");
                return Err(ModelError::Protocol { detail });
            }
            if whole.is_none() && blank && bytes.trim_ascii_start().starts_with(b"{") {
                whole = Some(Vec::new());
            }
            blank &= bytes.trim_ascii().is_empty();
            if let Some(whole) = &mut whole {
                whole.extend_from_slice(&bytes);
                if is_complete_object(whole) {
                    break;
                }
                continue;
            }
            let mut events = Vec::new();
            let pushed = parser.push(&bytes, &mut |event| events.push(event));
            told |= !events.is_empty();
            for event in events {
                fold.push_event(&event.data, &mut *on_delta)
                    .map_err(|fault| model_error_from_stream(fault, key))?;
            }
            pushed.map_err(|error| ModelError::Protocol { detail: error.to_string() })?;
        }
        if let Some(body) = whole {
            decode_unstreamed(&mut *fold, &body, key, on_delta)?;
        }
        let folded = fold.finish()?;
        let total_ms = elapsed_ms(started);
        // A connection is closed unless its body was read to the end, and the next turn wants to reuse it.
        drop(timeout(DRAIN_TIMEOUT, response.chunk()).await);
        Ok(ModelReply {
            parts: folded.parts,
            stop_reason: folded.stop_reason,
            usage: folded.usage,
            provider_request_id: None,
            first_byte_ms: first_byte_ms.unwrap_or(total_ms),
            total_ms,
        })
    }
}

/// Whether this is a complete JSON object, so that no closing bytes need to be awaited.
fn is_complete_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_end().ends_with(b"}") && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// Decodes a reply that arrived as one object: from a server that does not stream, or an error with status
/// 200.
fn decode_unstreamed(
    fold: &mut dyn StreamDecoder,
    body: &[u8],
    key: Option<&Secret>,
    on_delta: OnDelta<'_>,
) -> Result<(), ModelError> {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Err(ModelError::CutStream) };
    if !value["error"].is_null() {
        return Err(classify_error(ProviderErrorResponse { status: 200, retry_after_ms: None, body }, key));
    }
    if fold.push_full_reply(&value, on_delta).map_err(|fault| model_error_from_stream(fault, key))? {
        return Ok(());
    }
    let start: String = redact_key(&String::from_utf8_lossy(body), key).chars().take(80).collect();
    let detail = format!("an object instead of a stream of events: {}", start.escape_debug());
    Err(ModelError::Protocol { detail })
}

fn model_error_from_stream(fault: StreamError, key: Option<&Secret>) -> ModelError {
    match fault {
        StreamError::ProviderError(body) => {
            classify_error(ProviderErrorResponse { status: 200, retry_after_ms: None, body: &body }, key)
        }
        StreamError::NotJson(data) => {
            // Redacted before truncation, so that no part of a key remains.
            let start: String = redact_key(&data, key).chars().take(80).collect();
            ModelError::Protocol { detail: format!("an event that is no JSON: {}", start.escape_debug()) }
        }
    }
}

fn redact_key(text: &str, key: Option<&Secret>) -> String {
    key.map_or_else(|| text.to_owned(), |key| key.redact_from(text))
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn timeout_error(which: TimeoutKind, after: Duration) -> ModelError {
    ModelError::Timeout { which, after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX) }
}

fn elapsed_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Formats an error and its causes on one line: the outermost error alone only says that a request failed.
fn error_chain(error: reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_become_endpoint_urls() {
        for (provider, base, expected) in [
            (ModelProvider::Anthropic, None, Some("https://api.anthropic.com/v1/messages")),
            (ModelProvider::Anthropic, Some("http://h:1/v1/"), Some("http://h:1/v1/messages")),
            (ModelProvider::OpenAi, None, Some("https://api.openai.com/v1/chat/completions")),
            (
                ModelProvider::OpenAi,
                Some("http://localhost:11434/v1"),
                Some("http://localhost:11434/v1/chat/completions"),
            ),
            (ModelProvider::OpenAiResponses, None, Some("https://api.openai.com/v1/responses")),
            (ModelProvider::OpenAiResponses, Some("http://h/v1/"), Some("http://h/v1/responses")),
            (ModelProvider::OpenAi, Some("localhost:11434"), None),
            (ModelProvider::OpenAi, Some("ftp://h"), None),
            (ModelProvider::OpenAi, Some(""), None),
        ] {
            assert_eq!(
                endpoint_url(provider.protocol(), base).ok().as_ref().map(Url::as_str),
                expected,
                "{base:?}"
            );
        }
    }

    #[test]
    fn only_loopback_bypasses_the_proxy() {
        let loopback = |url: &str| is_loopback(&Url::parse(url).expect("an address"));
        assert!(
            loopback("http://127.0.0.1:80/") && loopback("http://[::1]/") && loopback("http://localhost/")
        );
        assert!(!loopback("http://localhost.example/") && !loopback("https://10.0.0.1/"));
    }

    #[test]
    fn tls_client_can_be_created_twice() {
        let model: ModelRef = "anthropic:x".parse().expect("legal");
        for _ in 0..2 {
            ModelClient::new(&model, &[], ModelTimeouts::default()).expect("ring and the system's roots");
        }
    }
}
