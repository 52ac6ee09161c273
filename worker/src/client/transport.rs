//! Connections, and sending a request and reading its response.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use docket_schema::api::{ProblemCode, ProblemDetails};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    ClientError,
    home_address::{HOME_URL, HomeResolver, lock_file_from_url},
    retry_until,
};
use crate::secret::Secret;

/// A coordinator that does not accept within this time is down, or behind a network that drops packets.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a response, in addition to the wait that the request itself asks for: a commit under load
/// takes milliseconds, a page of large events over a slow connection takes seconds.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest response: a complete lineage is sent as one.
pub(super) const RESPONSE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Total time that a call waits because of "too many requests".
const RATE_LIMIT_WAIT_MAX: Duration = Duration::from_secs(30);
/// Jitter, so that clients with the same requested delay do not retry in step.
const RATE_LIMIT_JITTER_MS: u64 = 250;
/// Idle connections to keep: each run process talks to one coordinator with few concurrent calls.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// A client of a coordinator's API with one token. Clones share connections.
#[derive(Clone)]
pub struct CoordinatorClient {
    http: reqwest::Client,
    base: Arc<Url>,
    /// The original address if it is a home's lock file; requests then use [`HOME_URL`].
    home: Option<Arc<Url>>,
    token: Arc<Secret>,
    retry_timeout: Duration,
}

impl std::fmt::Debug for CoordinatorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.address()).finish_non_exhaustive()
    }
}

impl CoordinatorClient {
    /// Creates a client of the coordinator at `base_url` (`http://HOST:PORT` or `https://HOST[:PORT]`), or of
    /// the coordinator that serves a home ([`home_address`](super::home_address)). Connects on first use.
    ///
    /// # Errors
    /// [`ClientError::InvalidUrl`]; [`ClientError::Setup`] if the URL is https and the system's certificates
    /// cannot be read.
    pub fn new(base_url: &str, token: Secret) -> Result<Self, ClientError> {
        Self::with_ca(base_url, token, None)
    }

    /// Like [`Self::new`], but for https trusts only the certificates in `ca` (PEM); `None` = the system's.
    ///
    /// # Errors
    /// Those of [`Self::new`]; [`ClientError::InvalidCa`] if `ca` contains no certificate.
    pub fn with_ca(base_url: &str, token: Secret, ca: Option<&str>) -> Result<Self, ClientError> {
        let base = Url::parse(base_url.trim()).map_err(|_| ClientError::InvalidUrl)?;
        if let Some(lock_file) = lock_file_from_url(&base) {
            let http = http_client(Some(HomeResolver::new(lock_file))).map_err(ClientError::Setup)?;
            let requests_to = Url::parse(HOME_URL).map_err(|_| ClientError::InvalidUrl)?;
            let (home, token) = (Some(Arc::new(base)), Arc::new(token));
            return Ok(Self {
                http,
                base: Arc::new(requests_to),
                home,
                token,
                retry_timeout: Duration::ZERO,
            });
        }
        let plain = base.username().is_empty()
            && base.password().is_none()
            && base.path() == "/"
            && base.query().is_none()
            && base.fragment().is_none()
            && base.has_host();
        let tls = match base.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(ClientError::InvalidUrl),
        };
        if !plain {
            return Err(ClientError::InvalidUrl);
        }
        let http = if tls { https_client(ca)? } else { http_client(None).map_err(ClientError::Setup)? };
        Ok(Self {
            http,
            base: Arc::new(base),
            home: None,
            token: Arc::new(token),
            retry_timeout: Duration::ZERO,
        })
    }

    /// Returns a client of the same coordinator and connections with another token.
    #[must_use]
    pub fn with_token(&self, token: Secret) -> Self {
        Self { token: Arc::new(token), ..self.clone() }
    }

    /// Returns a client whose calls wait up to `patience` for a coordinator that does not respond. A call
    /// whose response was lost is repeated, so every call must be safe to repeat.
    #[must_use]
    pub fn with_retry_timeout(&self, patience: Duration) -> Self {
        Self { retry_timeout: patience, ..self.clone() }
    }

    /// The coordinator's original address: `http://host:port`, or that of a home.
    pub fn address(&self) -> &str {
        self.home.as_deref().unwrap_or(&self.base).as_str().trim_end_matches('/')
    }

    /// Whether the client addresses a home, whose coordinator may be replaced by another process.
    pub fn is_home_client(&self) -> bool {
        self.home.is_some()
    }

    /// The address for people; for a home its folder.
    pub(super) fn display_address(&self) -> String {
        let lock_file = self.home.as_deref().and_then(lock_file_from_url);
        let folder = lock_file.as_deref().and_then(std::path::Path::parent);
        folder.map_or_else(|| self.address().to_owned(), |folder| folder.display().to_string())
    }

    pub(super) fn build_call(&self, doing: &'static str, method: Method, path: &str) -> ApiCall<'_> {
        let mut url = (*self.base).clone();
        url.set_path(path);
        ApiCall { client: self, doing, method, url, body: None, wait: Duration::ZERO }
    }

    pub(super) fn protocol_error(&self, doing: &'static str, what: impl Into<String>) -> ClientError {
        ClientError::Protocol { doing, url: self.display_address(), what: what.into() }
    }

    pub(super) fn transport_error(&self, doing: &'static str, source: reqwest::Error) -> ClientError {
        let source = source.without_url();
        if source.is_builder() {
            return self
                .protocol_error(doing, "the request cannot be built (is the token one line of ASCII?)");
        }
        let url = self.display_address();
        match find_tls_error(&source) {
            Some(why) => ClientError::Tls { doing, url, why: why.to_string() },
            None => ClientError::Unreachable { doing, url, source: Box::new(source) },
        }
    }
}

/// Finds the TLS error that caused a call to fail. An IO error does not report its inner error as its source.
fn find_tls_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(fault) = error.downcast_ref() {
        return Some(fault);
    }
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match held {
        Some(held) => find_tls_error(held),
        None => find_tls_error(error.source()?),
    }
}

fn http_client_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .redirect(reqwest::redirect::Policy::none())
}

fn https_client(ca: Option<&str>) -> Result<reqwest::Client, ClientError> {
    // A second installation fails and the first one stays in force, as intended.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = http_client_builder().https_only(true);
    if let Some(ca) = ca {
        let certificates =
            reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(|_| ClientError::InvalidCa)?;
        if certificates.is_empty() {
            return Err(ClientError::InvalidCa);
        }
        // With a private CA, no other CA may vouch for this host.
        builder = builder.tls_certs_only(certificates);
    }
    builder.build().map_err(ClientError::Setup)
}

/// Loading the system's certificates costs a run process about 10 ms and 5 MB, so plain http gets a TLS
/// configuration without trusted roots, which is never used.
fn http_client(resolver: Option<HomeResolver>) -> Result<reqwest::Client, reqwest::Error> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let nobody = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let plain = http_client_builder().tls_backend_preconfigured(nobody).no_proxy();
    match resolver {
        Some(resolver) => plain.dns_resolver(Arc::new(resolver)).build(),
        None => plain.build(),
    }
}

/// A request under construction.
pub(super) struct ApiCall<'a> {
    client: &'a CoordinatorClient,
    doing: &'static str,
    method: Method,
    url: Url,
    body: Option<(&'static str, Bytes)>,
    wait: Duration,
}

impl ApiCall<'_> {
    pub(super) fn with_query(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    pub(super) fn with_optional_query(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with_query(name, value),
            None => self,
        }
    }

    pub(super) fn with_json<T: Serialize>(mut self, body: &T) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|error| {
            self.client
                .protocol_error(self.doing, format!("the request cannot be serialized as JSON ({error})"))
        })?;
        self.body = Some(("application/json", bytes.into()));
        Ok(self)
    }

    pub(super) fn with_bytes(mut self, body: Bytes) -> Self {
        self.body = Some(("application/octet-stream", body));
        self
    }

    /// Sets the time that the request itself asks the coordinator to wait.
    pub(super) fn with_server_wait(mut self, wait_ms: u64) -> Self {
        self.wait = Duration::from_millis(wait_ms);
        self
    }

    fn build_request(&self) -> RequestBuilder {
        let url = self.url.clone();
        let request =
            self.client.http.request(self.method.clone(), url).bearer_auth(self.client.token.expose());
        match &self.body {
            Some((kind, bytes)) => request.header(reqwest::header::CONTENT_TYPE, *kind).body(bytes.clone()),
            None => request,
        }
    }

    /// Sends the request and reads the complete response; repeats it if the client has a retry timeout.
    pub(super) async fn send_for_bytes(self, limit: usize) -> Result<Bytes, ClientError> {
        if self.client.retry_timeout.is_zero() {
            return self.send_with_rate_limit_retry(limit).await;
        }
        // Boxed, so that it does not enlarge the futures of all callers.
        Box::pin(retry_until(Instant::now() + self.client.retry_timeout, || {
            self.send_with_rate_limit_retry(limit)
        }))
        .await
    }

    async fn send_with_rate_limit_retry(&self, limit: usize) -> Result<Bytes, ClientError> {
        let mut patience = RATE_LIMIT_WAIT_MAX;
        loop {
            let request = self.build_request().timeout(RESPONSE_TIMEOUT + self.wait);
            let response =
                request.send().await.map_err(|source| self.client.transport_error(self.doing, source))?;
            match rate_limit_wait(&response, &mut patience) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return self.check_status(response, limit).await,
            }
        }
    }

    async fn check_status(&self, response: Response, limit: usize) -> Result<Bytes, ClientError> {
        let status = response.status();
        let body = self.read_body(response, limit).await?;
        if status.is_success() {
            return Ok(body);
        }
        Err(self.error_from_response(status, &body))
    }

    async fn read_body(&self, mut response: Response, limit: usize) -> Result<Bytes, ClientError> {
        let failed = |source| self.client.transport_error(self.doing, source);
        let Some(first) = response.chunk().await.map_err(failed)? else { return Ok(Bytes::new()) };
        let mut rest = BytesMut::new();
        let mut whole = Some(first);
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if let Some(first) = whole.take() {
                rest.extend_from_slice(&first);
            }
            if rest.len() + chunk.len() > limit {
                return Err(self
                    .client
                    .protocol_error(self.doing, format!("the response is larger than {limit} bytes")));
            }
            rest.extend_from_slice(&chunk);
        }
        Ok(whole.unwrap_or_else(|| rest.freeze()))
    }

    fn error_from_response(&self, status: StatusCode, body: &[u8]) -> ClientError {
        if let Ok(problem) = serde_json::from_slice::<ProblemDetails>(body) {
            return ClientError::Problem(Box::new(problem));
        }
        match status {
            // Sent by a proxy while the coordinator behind it is down.
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                let detail = format!(
                    "the proxy at {} cannot reach the coordinator (status {status})",
                    self.client.display_address()
                );
                ClientError::Problem(Box::new(ProblemCode::Unavailable.to_problem(detail)))
            }
            // Sent by the proxy itself.
            StatusCode::TOO_MANY_REQUESTS => {
                let detail = format!("{} accepts no more requests for now", self.client.display_address());
                ClientError::Problem(Box::new(ProblemCode::TooMany.to_problem(detail)))
            }
            _ => self.client.protocol_error(self.doing, format!("status {status} without a problem body")),
        }
    }

    /// Sends the request and reads the response as JSON.
    pub(super) async fn send_for_json<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        let (client, doing) = (self.client.clone(), self.doing);
        let body = self.send_for_bytes(RESPONSE_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|error| {
            client.protocol_error(doing, format!("the response does not have the expected form ({error})"))
        })
    }

    /// Sends the request and ignores the content of a successful response.
    pub(super) async fn send(self) -> Result<(), ClientError> {
        self.send_for_bytes(RESPONSE_BYTES_MAX).await.map(drop)
    }

    /// Sends the request and returns the open response of an event stream. The response head must arrive in
    /// time; the caller limits the rest.
    pub(super) async fn open_event_stream(self, last_event_id: u64) -> Result<Response, ClientError> {
        let mut patience = RATE_LIMIT_WAIT_MAX;
        let late = |_| ClientError::Unreachable {
            doing: self.doing,
            url: self.client.display_address(),
            source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        };
        let response = loop {
            let request = self
                .build_request()
                .header(reqwest::header::ACCEPT, "text/event-stream")
                .header("last-event-id", last_event_id.to_string());
            let sent = tokio::time::timeout(RESPONSE_TIMEOUT, request.send()).await.map_err(late)?;
            let response = sent.map_err(|source| self.client.transport_error(self.doing, source))?;
            match rate_limit_wait(&response, &mut patience) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => break response,
            }
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = tokio::time::timeout(RESPONSE_TIMEOUT, self.read_body(response, RESPONSE_BYTES_MAX))
            .await
            .map_err(late)??;
        Err(self.error_from_response(status, &body))
    }
}

/// For "too many requests": returns the delay until the request is repeated, while `patience` lasts. Without
/// a requested delay it is one second.
fn rate_limit_wait(response: &Response, patience: &mut Duration) -> Option<Duration> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let said = response.headers().get(reqwest::header::RETRY_AFTER);
    let seconds = said.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok()).unwrap_or(1).max(1);
    let wait = Duration::from_secs(seconds);
    *patience = patience.checked_sub(wait)?;
    Some(wait + Duration::from_millis(crate::clock::random_jitter() % RATE_LIMIT_JITTER_MS))
}
