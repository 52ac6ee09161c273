//! Fuzzes requests to a real coordinator, as bytes on a connection.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, LazyLock},
    time::Duration,
};

use docket_coordinator::{
    clock::Clock,
    http::{ApiToken, TokenRole},
    server::{RunningServer, ServerConfig, start_server},
    store::sqlite,
};

use super::{lossy_text, split_input};

const TOKEN: &str = "a-token-of-the-fuzzer";
/// A request that may wait for work waits longer than this; it was accepted in that case.
const REPLY_TIMEOUT: Duration = Duration::from_millis(1500);
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

struct FuzzCoordinator {
    address: SocketAddr,
    // Both live as long as the process.
    _running: RunningServer,
    _runtime: tokio::runtime::Runtime,
    _home: tempfile::TempDir,
}

fn start_coordinator() -> FuzzCoordinator {
    let home = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let running = runtime.block_on(async {
        let store = sqlite::open(&home.path().join("docket.db")).await.expect("a store");
        let tokens = vec![ApiToken::from_token("fuzz", TokenRole::Admin, TOKEN)];
        start_server(Arc::new(store), ServerConfig::loopback(0, tokens), Arc::new(Clock::new()))
            .await
            .expect("serves")
    });
    FuzzCoordinator { address: running.local_addr(), _running: running, _runtime: runtime, _home: home }
}

/// The input is method and path, then the body. The response must always be valid for a client, and never an
/// internal error.
pub(super) fn fuzz_request(input: &[u8]) {
    static COORDINATOR: LazyLock<FuzzCoordinator> = LazyLock::new(start_coordinator);
    let pieces = split_input(input);
    let line = lossy_text(&pieces[0]);
    let mut words = line.split_ascii_whitespace();
    let method: String = words.next().unwrap_or("GET").chars().filter(char::is_ascii_uppercase).collect();
    let path: String = words.next().unwrap_or("/").chars().filter(char::is_ascii_graphic).collect();
    let (method, path) =
        (if method.is_empty() { "GET" } else { &method }, format!("/{}", path.trim_start_matches('/')));
    let body = pieces.get(1).cloned().unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        COORDINATOR.address,
        body.len()
    );
    let mut stream = TcpStream::connect(COORDINATOR.address).expect("it still accepts");
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a time limit");
    stream.write_all(head.as_bytes()).expect("it reads heads");
    // The server may respond and close before it has read an unwanted body.
    let _ = stream.write_all(&body);
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    if answer.is_empty() && read.is_err() {
        return;
    }
    let answer = lossy_text(&answer);
    let status: u16 = answer.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    assert!((200..500).contains(&status), "{method} {path}: {answer}");
    let told = answer.to_ascii_lowercase().contains("content-type: application/problem+json");
    // hyper refuses data that is not HTTP with an empty response.
    let of_hyper = [400, 414, 431].contains(&status) && answer.ends_with("\r\n\r\n");
    assert!(status < 400 || told || of_hyper || method == "HEAD", "{method} {path}: {answer}");
}
