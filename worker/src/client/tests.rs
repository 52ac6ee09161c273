//! Tests of the client against a small server that uses the API types.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use docket_schema::{
    api::{BODY_BYTES_MAX, EventPage, ProblemCode, TaskQuery},
    content::BlobRef,
    event::{Envelope, Payload},
    ids::{BlobHash, Epoch, EventHash, Position, QueueName, RunId, Seq, StreamId, Timestamp, Turn},
    task::TaskState,
};
use futures_util::StreamExt as _;

use super::*;
use crate::secret::Secret;

fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

async fn start_server(router: Router) -> (CoordinatorClient, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (CoordinatorClient::new(&url, secret("dk_test")).unwrap(), server)
}

fn envelope(run: RunId, seq: u64) -> Envelope {
    Envelope {
        stream: StreamId::Run(run),
        seq: Seq(seq),
        position: Position(seq),
        recorded_at: Timestamp(0),
        turn: Turn(0),
        epoch: Epoch(1),
        kind: "Told".to_owned(),
        version: 1,
        payload: Payload::parse("{ }".to_owned()).unwrap(),
        prev_hash: EventHash::ZERO,
        hash: EventHash::ZERO,
    }
}

fn run_id() -> RunId {
    "01920000-0000-7000-8000-000000000001".parse().unwrap()
}

#[test]
fn only_coordinator_addresses_are_accepted() {
    for bad in ["", "localhost:80", "ftp://x", "http://u:p@x", "http://x/path", "http://x?q", "http://"] {
        assert!(matches!(CoordinatorClient::new(bad, secret("t")), Err(ClientError::InvalidUrl)), "{bad}");
    }
    for good in ["http://127.0.0.1:1", " http://[::1]:80/ ", "https://docket.example"] {
        CoordinatorClient::new(good, secret("t")).unwrap();
    }
}

#[tokio::test]
async fn token_and_query_are_sent_and_the_token_is_not_in_errors() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = |State(seen): State<Arc<Mutex<Vec<String>>>>, headers: HeaderMap, uri: Uri| async move {
        seen.lock().unwrap().push(format!("{} {uri}", headers["authorization"].to_str().unwrap()));
        let problem = ProblemCode::Unauthorized.to_problem("the token is not one of ours");
        (StatusCode::UNAUTHORIZED, Json(problem))
    };
    let (client, _server) = start_server(Router::new().fallback(record).with_state(Arc::clone(&seen))).await;
    let query = TaskQuery {
        state: Some(TaskState::Running.into()),
        queue: Some(QueueName::default()),
        limit: Some(3),
        ..TaskQuery::default()
    };
    let error = client.with_token(secret("dk_other")).list_tasks(&query).await.unwrap_err();
    assert_eq!(error.problem_code(), Some(ProblemCode::Unauthorized));
    assert!(!error.is_retryable());
    assert_eq!(
        error.to_string(),
        "the token is not one of ours (set DOCKET_TOKEN to the coordinator's token)"
    );
    assert!(!format!("{error:?} {client:?}").contains("dk_"));
    let line = format!("Bearer dk_other /v1/tasks?state=running&queue={}&limit=3", QueueName::default());
    assert_eq!(*seen.lock().unwrap(), [line]);
}

#[tokio::test]
async fn unreachable_and_foreign_servers_are_distinguished() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let gone = CoordinatorClient::new(&format!("http://{address}"), secret("t")).unwrap();
    let error = gone.get_status().await.unwrap_err();
    assert!(error.is_retryable());
    let expected = format!(
        "cannot reach the coordinator at http://{address} to read the status: is it running? `docket up` starts one"
    );
    assert_eq!(error.to_string(), expected);

    let other = Router::new().fallback(async || "<html>hello</html>");
    let (client, _server) = start_server(other).await;
    let error = client.get_status().await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }) && !error.is_retryable());

    let proxy = Router::new().fallback(async || (StatusCode::BAD_GATEWAY, "nobody home"));
    let (client, _server) = start_server(proxy).await;
    assert!(client.get_status().await.unwrap_err().is_retryable());

    let error = client.with_token(secret("two\nlines")).get_status().await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}

#[derive(Clone, Default)]
struct BlobServer {
    stored: Arc<Mutex<std::collections::BTreeMap<BlobHash, Bytes>>>,
    puts: Arc<AtomicUsize>,
}

#[derive(serde::Deserialize)]
struct MissingBlobsQuery {
    hashes: Vec<BlobHash>,
}

fn blob_routes(blobs: BlobServer) -> Router {
    let store = |State(blobs): State<BlobServer>, Path(hash): Path<String>, body: Bytes| async move {
        blobs.puts.fetch_add(1, Ordering::SeqCst);
        blobs.stored.lock().unwrap().insert(hash.parse().unwrap(), body);
        StatusCode::NO_CONTENT
    };
    let fetch = |State(blobs): State<BlobServer>, Path(hash): Path<String>| async move {
        match blobs.stored.lock().unwrap().get(&hash.parse::<BlobHash>().unwrap()) {
            Some(bytes) => bytes.clone().into_response(),
            None => (StatusCode::NOT_FOUND, Json(ProblemCode::NotFound.to_problem("no such blob")))
                .into_response(),
        }
    };
    let ask = |State(blobs): State<BlobServer>, Json(asked): Json<MissingBlobsQuery>| async move {
        let stored = blobs.stored.lock().unwrap();
        let missing: Vec<BlobHash> = asked.hashes.into_iter().filter(|h| !stored.contains_key(h)).collect();
        Json(serde_json::json!({ "missing": missing }))
    };
    Router::new()
        .route("/v1/blobs/{hash}", put(store).get(fetch))
        .route("/v1/blobs/missing", post(ask))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(blobs)
}

#[tokio::test]
async fn only_missing_blobs_are_uploaded_and_bytes_are_checked() {
    let blobs = BlobServer::default();
    let (client, _server) = start_server(blob_routes(blobs.clone())).await;
    let of = |text: String| (BlobRef::for_bytes(text.as_bytes()), Bytes::from(text));
    let (present, bytes) = of("0".to_owned());
    client.put_blob(present, bytes.clone()).await.unwrap();
    let mut all: Vec<_> = (0..10).map(|n| of(n.to_string())).collect();
    all.push((present, bytes));
    client.upload_missing_blobs(all).await.unwrap();
    assert_eq!(blobs.puts.load(Ordering::SeqCst), 10, "one before, nine missing, none twice");

    let (large, bytes) = of("x".repeat(3_000_000));
    client.put_blob(large, bytes.clone()).await.unwrap();
    assert_eq!(client.get_blob(&large).await.unwrap(), bytes);
    let (absent, _) = of("absent".to_owned());
    assert_eq!(client.get_blob(&absent).await.unwrap_err().problem_code(), Some(ProblemCode::NotFound));
    blobs.stored.lock().unwrap().insert(large.hash, Bytes::from_static(b"forged"));
    assert!(matches!(client.get_blob(&large).await, Err(ClientError::Protocol { .. })));
}

#[tokio::test]
async fn follow_survives_broken_connections_without_duplicates() {
    let connections = Arc::new(AtomicUsize::new(0));
    let follow = |State(connections): State<Arc<AtomicUsize>>, headers: HeaderMap| async move {
        let nth = connections.fetch_add(1, Ordering::SeqCst);
        let from: u64 = headers["last-event-id"].to_str().unwrap().parse().unwrap();
        if nth == 1 {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                Json(ProblemCode::Unavailable.to_problem("restarting")),
            )
                .into_response();
        }
        // Each connection sends two events, the last one seen and a new one, and breaks in the middle of an
        // event.
        let mut text = ": hello\n\n".to_owned();
        for seq in from.max(1)..=(from + 2).min(5) {
            let json = serde_json::to_string(&envelope(run_id(), seq)).unwrap();
            text.push_str(&format!("id: {seq}\ndata: {json}\n\n"));
        }
        text.push_str(if from + 2 >= 5 { "event: end\ndata: {}\n\n" } else { "data: {\"cut" });
        Response::new(text.into())
    };
    let router =
        Router::new().route("/v1/runs/{id}/follow", get(follow)).with_state(Arc::clone(&connections));
    let (client, _server) = start_server(router).await;
    let events: Vec<_> =
        client.follow_run(run_id(), Seq(0)).map(|event| event.unwrap().seq.0).collect().await;
    assert_eq!(events, [1, 2, 3, 4, 5]);
    assert_eq!(connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn pages_of_a_stream_are_joined() {
    let page = |uri: Uri| async move {
        let after: u64 =
            uri.query().unwrap().split('&').find_map(|p| p.strip_prefix("after=")).unwrap().parse().unwrap();
        let events: Vec<_> = (after + 1..=(after + 2).min(5)).map(|seq| envelope(run_id(), seq)).collect();
        Json(EventPage { events, more: after + 2 < 5 })
    };
    let (client, _server) = start_server(Router::new().route("/v1/runs/{id}/events", get(page))).await;
    let events = client.all_events(run_id(), HistoryScope::Own).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(events[0].payload.as_str(), "{ }", "the payload's exact text survives");
}

#[tokio::test]
async fn retry_succeeds_when_the_coordinator_returns() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client =
        CoordinatorClient::new(&format!("http://{}", listener.local_addr().unwrap()), secret("t")).unwrap();
    let attempts = AtomicUsize::new(0);
    let server = async {
        // The first connection is cut without a response, as when the coordinator is killed.
        drop(listener.accept().await.unwrap());
        let router = Router::new().route("/v1/blobs/missing", post(async || r#"{"missing":[]}"#));
        axum::serve(listener, router).await.unwrap();
    };
    let hash = [BlobHash::hash_bytes(b"x")];
    let asking = retry_until(Instant::now() + Duration::from_secs(30), || {
        attempts.fetch_add(1, Ordering::SeqCst);
        client.missing_blobs(&hash)
    });
    tokio::select! {
        answer = asking => assert!(answer.unwrap().is_empty()),
        () = server => unreachable!("it serves for ever"),
    }
    assert!(attempts.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn rate_limited_call_waits_and_is_sent_again_in_full() {
    let seen = Arc::new(AtomicUsize::new(0));
    let busy = |State(seen): State<Arc<AtomicUsize>>, body: Bytes| async move {
        assert!(!body.is_empty(), "the body is sent again, too");
        match seen.fetch_add(1, Ordering::SeqCst) {
            0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "a proxy's own").into_response(),
            1 => {
                let problem = Json(ProblemCode::TooMany.to_problem("slower"));
                (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], problem).into_response()
            }
            _ => r#"{"missing":[]}"#.into_response(),
        }
    };
    let never = async || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "31")], "later");
    let router = Router::new()
        .route("/v1/blobs/missing", post(busy))
        .route("/v1/status", get(never))
        .with_state(Arc::clone(&seen));
    let (client, _server) = start_server(router).await;
    let begun = Instant::now();
    assert!(client.missing_blobs(&[BlobHash::hash_bytes(b"x")]).await.unwrap().is_empty());
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    let error = client.get_status().await.unwrap_err();
    assert_eq!(error.problem_code(), Some(ProblemCode::TooMany), "longer than anybody waits is told at once");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn tls_failure_reason_is_in_the_first_line() {
    let (plain, _server) = start_server(Router::new().fallback(async || "no TLS here")).await;
    let url = plain.address().replace("http://", "https://");
    let error = CoordinatorClient::new(&url, secret("t")).unwrap().get_status().await.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }) && error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains("InvalidContentType"), "{error}");
}

/// A coordinator that lacks this blob. It runs in a runtime of its own: shutting that down closes its
/// connections as a kill does.
fn serve_missing(hash: BlobHash) -> (std::net::SocketAddr, tokio::runtime::Runtime) {
    let answer = move || async move { Json(serde_json::json!({ "missing": [hash] })) };
    let router = Router::new().route("/v1/blobs/missing", post(answer));
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    server.spawn(async move {
        axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
    });
    (address, server)
}

/// Takes the lock of `file`, like the owner of a home.
fn lock_as_owner(file: &std::fs::File) {
    use nix::{
        fcntl::{FcntlArg, fcntl},
        libc,
    };
    let lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
}

#[tokio::test]
async fn home_client_finds_each_lock_owner_and_no_other() {
    let (one, two) = (BlobHash::hash_bytes(b"one"), BlobHash::hash_bytes(b"two"));
    let (first, first_server) = serve_missing(one);
    let (second, second_server) = serve_missing(two);
    let folder = tempfile::tempdir().unwrap();
    let lock_file = folder.path().join("docket.lock");
    let announce = |address: std::net::SocketAddr| {
        std::fs::write(&lock_file, format!(r#"{{"pid":1,"address":"http://{address}"}}"#)).unwrap();
    };
    let client = CoordinatorClient::new(&home_address(&lock_file).unwrap(), secret("dk_test")).unwrap();
    // An unlocked file may announce an unrelated process.
    announce(first);
    let error = client.missing_blobs(&[one]).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    let owner = std::fs::File::options().read(true).write(true).open(&lock_file).unwrap();
    lock_as_owner(&owner);
    assert_eq!(client.missing_blobs(&[one]).await.unwrap(), [one]);
    // The first owner dies and another one announces itself: the same client reaches it, waiting if
    // necessary.
    first_server.shutdown_background();
    drop(owner);
    announce(second);
    let patient = client.with_retry_timeout(Duration::from_secs(60));
    let blobs = [two];
    let (answer, _owner) = tokio::join!(patient.missing_blobs(&blobs), async {
        let owner = std::fs::File::options().read(true).write(true).open(&lock_file).unwrap();
        lock_as_owner(&owner);
        owner
    });
    assert_eq!(answer.unwrap(), [two]);
    second_server.shutdown_background();
    assert_eq!(home_address(std::path::Path::new("relative")), None);
}
