//! Test fixture: a coordinator on a free port with its own store, and a client for its JSON API.

use std::{path::Path, sync::Arc};

use docket_schema::{
    api::{
        AppendRequest, CreateTokenRequest, CreatedToken, HeartbeatRequest, HeldLease, Lease, LeaseRequest,
        LeaseResponse, ProblemDetails,
    },
    content::BlobRef,
    event::NewEvent,
    ids::{Epoch, IncarnationId, Seq, TaskId},
    task::TaskSpec,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::event_fixtures::{MANIFEST, task_spec, test_engine};
use crate::{
    clock::{self, Clock},
    http::{ApiToken, TokenRole},
    server::{RunningServer, ServerConfig, start_server},
    store::{Store, sqlite},
};

pub(super) fn token_for(role: TokenRole) -> &'static str {
    match role {
        TokenRole::Admin => "token-admin",
        TokenRole::Submit => "token-submit",
        TokenRole::Worker => "token-worker",
        TokenRole::Read => "token-read",
    }
}

pub(super) struct TestServer {
    pub(super) server: RunningServer,
    pub(super) store: Arc<dyn Store>,
    pub(super) client: reqwest::Client,
    _dir: tempfile::TempDir,
}

/// A response: status, content type, body.
#[derive(Debug)]
pub(super) struct TestReply {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

impl TestReply {
    pub(super) fn parse_success<T: DeserializeOwned>(self) -> T {
        assert!(self.status < 300, "{} {}", self.status, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).expect("the answer has its shape")
    }

    pub(super) fn parse_problem(self) -> ProblemDetails {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.content_type, "application/problem+json", "{} {text}", self.status);
        let problem: ProblemDetails = serde_json::from_slice(&self.body).expect("a problem");
        assert_eq!(problem.status, self.status);
        assert_eq!(problem.status, problem.code.code_status_title().1);
        assert!(!problem.detail.is_empty());
        problem
    }
}

pub(super) fn http_client() -> reqwest::Client {
    // The process-wide provider can be set once; a second test finds it set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("client")
}

impl TestServer {
    pub(super) async fn start() -> Self {
        Self::with_lease_ms(30_000).await
    }

    pub(super) async fn with_lease_ms(lease_ms: u64) -> Self {
        Self::start_with(|config| (config.lease_ms, config.heartbeat_ms) = (lease_ms, lease_ms / 3)).await
    }

    /// Starts a coordinator with changed settings.
    pub(super) async fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let store = open_store(folder.path()).await;
        let running = serve_with(Arc::clone(&store), change).await;
        let house = Self { server: running, store, client: http_client(), _dir: folder };
        let blob = BlobRef::for_bytes(MANIFEST);
        let put = house
            .send(
                "PUT",
                &format!("/v1/blobs/{}", blob.hash),
                token_for(TokenRole::Submit),
                MANIFEST.to_vec(),
                None,
            )
            .await;
        assert_eq!(put.status, 204, "{put:?}");
        house
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Vec<u8>,
        header: Option<(&str, &str)>,
    ) -> TestReply {
        let method = method.parse().expect("method");
        let mut request = self.client.request(method, format!("{}{path}", self.server.url()));
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if !body.is_empty() {
            request = request.body(body);
        }
        let answer = request.send().await.expect("an answer");
        let content_type = answer.headers().get("content-type").map(|t| t.to_str().expect("text").to_owned());
        TestReply {
            status: answer.status().as_u16(),
            content_type: content_type.unwrap_or_default(),
            body: answer.bytes().await.expect("body").to_vec(),
        }
    }

    /// Creates a token with this role, valid for `expires_in_ms`.
    pub(super) async fn create_token(
        &self,
        name: &str,
        role: TokenRole,
        expires_in_ms: Option<u64>,
    ) -> CreatedToken {
        let request = CreateTokenRequest { name: name.parse().expect("a name"), role, expires_in_ms };
        self.post_as_admin("/v1/tokens", &request).await.parse_success()
    }

    pub(super) async fn get(&self, path: &str) -> TestReply {
        self.send("GET", path, token_for(TokenRole::Admin), Vec::new(), None).await
    }

    pub(super) async fn post<T: Serialize>(&self, path: &str, token: &str, body: &T) -> TestReply {
        let body = serde_json::to_vec(body).expect("json");
        self.send("POST", path, token, body, Some(("content-type", "application/json"))).await
    }

    pub(super) async fn post_as_admin<T: Serialize>(&self, path: &str, body: &T) -> TestReply {
        self.post(path, token_for(TokenRole::Admin), body).await
    }

    pub(super) async fn submit_spec(&self, spec: TaskSpec) -> TaskId {
        let body = serde_json::json!({ "tasks": [spec] });
        let answer: Value = self.post("/v1/tasks", token_for(TokenRole::Submit), &body).await.parse_success();
        answer["tasks"][0]["id"].as_str().expect("id").parse().expect("id")
    }

    /// Submits a task and leases it.
    pub(super) async fn submit_and_lease(&self) -> Lease {
        self.submit_spec(task_spec("a task")).await;
        self.lease_with(&lease_request(0)).await.remove(0)
    }

    pub(super) async fn lease_with(&self, request: &LeaseRequest) -> Vec<Lease> {
        self.post("/v1/lease", token_for(TokenRole::Worker), request)
            .await
            .parse_success::<LeaseResponse>()
            .leases
    }

    pub(super) async fn send_append(&self, lease: &Lease, at: u64, events: Vec<NewEvent>) -> TestReply {
        let request = append_request(lease.epoch, at, events);
        self.post(&format!("/v1/runs/{}/append", lease.run), &lease.token, &request).await
    }

    /// Appends successfully and returns the head.
    pub(super) async fn append_ok(&self, lease: &Lease, at: u64, events: Vec<NewEvent>) -> u64 {
        let answer: Value = self.send_append(lease, at, events).await.parse_success();
        answer["head"]["seq"].as_u64().expect("seq")
    }

    pub(super) async fn task_state(&self, task: TaskId) -> String {
        let view: Value = self.get(&format!("/v1/tasks/{task}")).await.parse_success();
        view["task"]["state"].as_str().expect("state").to_owned()
    }
}

pub(super) async fn serve(store: Arc<dyn Store>, lease_ms: u64) -> RunningServer {
    serve_with(store, |config| (config.lease_ms, config.heartbeat_ms) = (lease_ms, lease_ms / 3)).await
}

pub(super) async fn serve_with(
    store: Arc<dyn Store>,
    change: impl FnOnce(&mut ServerConfig),
) -> RunningServer {
    let tokens = TokenRole::ALL
        .into_iter()
        .map(|role| ApiToken::from_token(format!("{role:?}"), role, token_for(role)));
    let mut config = ServerConfig::loopback(0, tokens.collect());
    // Most tests send invalid tokens to check that they are refused as such.
    config.rate_limits.auth_failures_per_minute = 1_000_000;
    change(&mut config);
    start_server(store, config, Arc::new(Clock::new())).await.expect("serves")
}

/// Waits for an event that must happen, and fails otherwise.
pub(super) async fn within_time<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let long = std::time::Duration::from_secs(60);
    tokio::time::timeout(long, wait).await.unwrap_or_else(|_| panic!("{what}: not within {long:?}"))
}

/// Sends the text and reads until the server closes the connection.
pub(super) async fn send_raw(house: &TestServer, request: &str) -> String {
    let stream = TcpStream::connect(house.server.local_addr()).await.expect("connects");
    let (mut read, mut write) = stream.into_split();
    let mut answer = Vec::new();
    // A refused client may be disconnected while it is still sending.
    let (_, _) = tokio::join!(write.write_all(request.as_bytes()), read.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

pub(super) async fn open_store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(sqlite::open(&folder.join("docket.db")).await.expect("the store opens"))
}

pub(super) fn append_request(epoch: Epoch, at: u64, events: Vec<NewEvent>) -> AppendRequest {
    AppendRequest { expected_seq: Seq(at), epoch, events, blobs: Vec::new(), names: Vec::new() }
}

pub(super) fn lease_request(wait_ms: u64) -> LeaseRequest {
    LeaseRequest {
        labels: docket_schema::task::LabelSet::default(),
        layers: Vec::new(),
        faults: Vec::new(),
        room: None,
        incarnation: IncarnationId(clock::new_id()),
        number: 1,
        name: "worker".to_owned(),
        queues: Vec::new(),
        engines: vec![test_engine()],
        max: 1,
        wait_ms,
    }
}

pub(super) fn heartbeat(request: &LeaseRequest, lease: &Lease, wait_ms: u64) -> HeartbeatRequest {
    let held = vec![HeldLease { task: lease.task, epoch: lease.epoch }];
    HeartbeatRequest { incarnation: request.incarnation, held, room: None, wait_ms }
}
