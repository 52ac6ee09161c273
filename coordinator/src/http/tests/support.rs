//! A coordinator on a free port with a store of its own, and a client that speaks JSON to it.

use std::{path::Path, sync::Arc};

use docket_schema::{
    content::BlobRef,
    event::NewEvent,
    ids::{Epoch, IncarnationId, Seq, TaskId},
    task::TaskSpec,
    wire::{
        AppendRequest, CreateTokenRequest, CreatedToken, HeartbeatRequest, Held, Lease, LeaseRequest,
        LeaseResponse, Problem,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::events::{MANIFEST, engine, spec};
use crate::{
    clock::{self, Clock},
    http::{ApiToken, Role},
    server::{Running, ServerConfig, start},
    store::{Store, sqlite},
};

pub(super) fn token(role: Role) -> &'static str {
    match role {
        Role::Admin => "token-admin",
        Role::Submit => "token-submit",
        Role::Worker => "token-worker",
        Role::Read => "token-read",
    }
}

pub(super) struct House {
    pub(super) running: Running,
    pub(super) store: Arc<dyn Store>,
    pub(super) client: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// An answer: status, content type, body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn good<T: DeserializeOwned>(self) -> T {
        assert!(self.status < 300, "{} {}", self.status, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).expect("the answer has its shape")
    }

    pub(super) fn problem(self) -> Problem {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.content_type, "application/problem+json", "{} {text}", self.status);
        let problem: Problem = serde_json::from_slice(&self.body).expect("a problem");
        assert_eq!(problem.status, self.status);
        assert_eq!(problem.status, problem.code.row().1);
        assert!(!problem.detail.is_empty());
        problem
    }
}

pub(super) fn client() -> reqwest::Client {
    // The process-wide provider can be set once; a second test finds it set.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("client")
}

impl House {
    pub(super) async fn open() -> Self {
        Self::with_lease_ms(30_000).await
    }

    pub(super) async fn with_lease_ms(lease_ms: u64) -> Self {
        Self::with(|config| (config.lease_ms, config.heartbeat_ms) = (lease_ms, lease_ms / 3)).await
    }

    /// A house whose coordinator is configured otherwise.
    pub(super) async fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let store = open_store(folder.path()).await;
        let running = serve_with(Arc::clone(&store), change).await;
        let house = Self { running, store, client: client(), _folder: folder };
        let blob = BlobRef::of(MANIFEST);
        let put = house
            .send("PUT", &format!("/v1/blobs/{}", blob.hash), token(Role::Submit), MANIFEST.to_vec(), None)
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
    ) -> Answer {
        let method = method.parse().expect("method");
        let mut request = self.client.request(method, format!("{}{path}", self.running.url()));
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
        Answer {
            status: answer.status().as_u16(),
            content_type: content_type.unwrap_or_default(),
            body: answer.bytes().await.expect("body").to_vec(),
        }
    }

    /// Makes a token of this role, for `expires_in_ms`.
    pub(super) async fn made(&self, name: &str, role: Role, expires_in_ms: Option<u64>) -> CreatedToken {
        let request = CreateTokenRequest { name: name.parse().expect("a name"), role, expires_in_ms };
        self.admin("/v1/tokens", &request).await.good()
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, token(Role::Admin), Vec::new(), None).await
    }

    pub(super) async fn post<T: Serialize>(&self, path: &str, token: &str, body: &T) -> Answer {
        let body = serde_json::to_vec(body).expect("json");
        self.send("POST", path, token, body, Some(("content-type", "application/json"))).await
    }

    pub(super) async fn admin<T: Serialize>(&self, path: &str, body: &T) -> Answer {
        self.post(path, token(Role::Admin), body).await
    }

    pub(super) async fn submit(&self, spec: TaskSpec) -> TaskId {
        let body = serde_json::json!({ "tasks": [spec] });
        let answer: Value = self.post("/v1/tasks", token(Role::Submit), &body).await.good();
        answer["tasks"][0]["id"].as_str().expect("id").parse().expect("id")
    }

    /// Submits a task and leases it.
    pub(super) async fn leased(&self) -> Lease {
        self.submit(spec("a task")).await;
        self.lease(&lease_request(0)).await.remove(0)
    }

    pub(super) async fn lease(&self, request: &LeaseRequest) -> Vec<Lease> {
        self.post("/v1/lease", token(Role::Worker), request).await.good::<LeaseResponse>().leases
    }

    pub(super) async fn append(&self, lease: &Lease, at: u64, events: Vec<NewEvent>) -> Answer {
        let request = append_request(lease.epoch, at, events);
        self.post(&format!("/v1/runs/{}/append", lease.run), &lease.token, &request).await
    }

    /// Appends and must succeed; answers the head.
    pub(super) async fn appended(&self, lease: &Lease, at: u64, events: Vec<NewEvent>) -> u64 {
        let answer: Value = self.append(lease, at, events).await.good();
        answer["head"]["seq"].as_u64().expect("seq")
    }

    pub(super) async fn task_state(&self, task: TaskId) -> String {
        let view: Value = self.get(&format!("/v1/tasks/{task}")).await.good();
        view["task"]["state"].as_str().expect("state").to_owned()
    }
}

pub(super) async fn serve(store: Arc<dyn Store>, lease_ms: u64) -> Running {
    serve_with(store, |config| (config.lease_ms, config.heartbeat_ms) = (lease_ms, lease_ms / 3)).await
}

pub(super) async fn serve_with(store: Arc<dyn Store>, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let tokens = Role::ALL.into_iter().map(|role| ApiToken::of(format!("{role:?}"), role, token(role)));
    let mut config = ServerConfig::loopback(0, tokens.collect());
    // Most tests send wrong tokens to see that they are refused as such.
    config.rates.auth_failures_per_minute = 1_000_000;
    change(&mut config);
    start(store, config, Arc::new(Clock::new())).await.expect("serves")
}

/// Waits for something that must come, and fails where it does not.
pub(super) async fn in_time<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let long = std::time::Duration::from_secs(60);
    tokio::time::timeout(long, wait).await.unwrap_or_else(|_| panic!("{what}: not within {long:?}"))
}

/// Sends this, and reads until the other side has closed.
pub(super) async fn raw(house: &House, request: &str) -> String {
    let stream = TcpStream::connect(house.running.local_addr()).await.expect("connects");
    let (mut read, mut write) = stream.into_split();
    let mut answer = Vec::new();
    // Whoever is refused may be cut off while it still sends.
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
        labels: docket_schema::task::Labels::default(),
        layers: Vec::new(),
        faults: Vec::new(),
        room: None,
        incarnation: IncarnationId(clock::new_id()),
        number: 1,
        name: "worker".to_owned(),
        queues: Vec::new(),
        engines: vec![engine()],
        max: 1,
        wait_ms,
    }
}

pub(super) fn heartbeat(request: &LeaseRequest, lease: &Lease, wait_ms: u64) -> HeartbeatRequest {
    let held = vec![Held { task: lease.task, epoch: lease.epoch }];
    HeartbeatRequest { incarnation: request.incarnation, held, room: None, wait_ms }
}
