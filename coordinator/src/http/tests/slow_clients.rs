//! Slow clients over real sockets: each is disconnected within its limit; idle clients are not.

use std::time::Duration;

use docket_schema::{content::BlobRef, ids::Seq};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::{
    event_fixtures::{model_answered_with, run_started},
    support::{TestServer, token_for, within_time},
};
use crate::{http::TokenRole, server::ConnectionTimeouts};

/// How often a slow client sends a byte, without ever giving up.
const TRICKLE_INTERVAL: Duration = Duration::from_millis(20);

async fn open_server() -> TestServer {
    let limit = Duration::from_millis(300);
    let idle = Duration::from_secs(600);
    let patience = ConnectionTimeouts {
        idle,
        first_request: limit,
        request_head: limit,
        body: limit,
        response_stall: limit,
        handshake: limit,
    };
    TestServer::start_with(|config| config.timeouts = patience).await
}

async fn connect_to(house: &TestServer) -> TcpStream {
    TcpStream::connect(house.server.local_addr()).await.expect("connects")
}

/// Sends `first`, then a byte at a time until the server replies or disconnects. Returns the reply.
async fn send_slowly(house: &TestServer, first: &str, byte: &[u8]) -> String {
    let mut stream = connect_to(house).await;
    stream.write_all(first.as_bytes()).await.expect("is taken");
    let (mut read, mut write) = stream.into_split();
    let answer = async {
        let mut answer = Vec::new();
        // A reset ends the connection as well.
        drop(read.read_to_end(&mut answer).await);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let feed = async {
        while write.write_all(byte).await.is_ok() {
            tokio::time::sleep(TRICKLE_INTERVAL).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = within_time("an end", answer) => answer,
        () = feed => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn slow_request_heads_time_out_but_idle_connections_do_not() {
    let house = open_server().await;
    let mut idle = connect_to(&house).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("is taken");
    let answer = send_slowly(&house, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ", b"y").await;
    assert_eq!(answer, "", "nothing was asked yet");
    let second = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nx: ";
    let answer = send_slowly(&house, second, b"y").await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "the first of two is answered: {answer}");
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    idle.write_all(request.as_bytes()).await.expect("still open");
    let mut answer = String::new();
    idle.read_to_string(&mut answer).await.expect("an answer");
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn connections_without_a_request_time_out() {
    let house = open_server().await;
    let mut silent = connect_to(&house).await;
    let mut answer = Vec::new();
    within_time("the end of a silent connection", silent.read_to_end(&mut answer)).await.expect("closed");
    assert!(answer.is_empty());
}

#[tokio::test]
async fn reader_that_sends_a_byte_keeps_its_stream() {
    let house = open_server().await;
    let lease = house.submit_and_lease().await;
    let mut at = house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let mut stream = connect_to(&house).await;
    let request = format!(
        "GET /v1/runs/{}/follow HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        lease.run,
        token_for(TokenRole::Admin)
    );
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let mut got = String::new();
    let mut wait_for = async |stream: &mut TcpStream, what: &str| {
        while !got.contains(what) {
            let mut some = [0; 4096];
            let read = within_time(what, stream.read(&mut some)).await.expect("reads");
            assert!(read > 0, "the stream was cut before {what}: {got}");
            got.push_str(&String::from_utf8_lossy(&some[..read]));
        }
    };
    wait_for(&mut stream, "RunStarted").await;
    // May be the first byte of a next request, whose time limit starts when this response has ended.
    stream.write_all(b"G").await.expect("is taken");
    tokio::time::sleep(Duration::from_millis(900)).await;
    at = house
        .append_ok(
            &lease,
            at,
            vec![super::event_fixtures::model_called(1), model_answered_with(1, "still here")],
        )
        .await;
    assert!(at > 1);
    wait_for(&mut stream, "still here").await;
}

#[tokio::test]
async fn slow_request_bodies_are_rejected() {
    let house = open_server().await;
    for length in ["content-length: 100000", "transfer-encoding: chunked"] {
        let head = format!(
            "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n{length}\r\n\r\n",
            token_for(TokenRole::Admin)
        );
        let byte: &[u8] = if length.starts_with("content") { b" " } else { b"1\r\n \r\n" };
        let answer = send_slowly(&house, &head, byte).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{length}: {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains("did not arrive"), "{answer}");
    }
}

/// Sends a request with a small window and reads nothing. Returns once the server gives up.
async fn request_without_reading(house: &TestServer, path: &str) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_recv_buffer_size(4096).expect("small");
    let mut stream = socket.connect(house.server.local_addr()).await.expect("connects");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        token_for(TokenRole::Admin)
    );
    stream.write_all(request.as_bytes()).await.expect("is taken");
    // Data sent after the server has closed gets a reset, and the next write fails.
    let dropped = async {
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(TRICKLE_INTERVAL).await;
        }
    };
    within_time("the end of a connection that nobody reads", dropped).await;
}

#[tokio::test]
async fn blob_reader_that_never_reads_is_disconnected() {
    let house = open_server().await;
    let bytes = vec![7; 24 * 1024 * 1024];
    let path = format!("/v1/blobs/{}", BlobRef::for_bytes(&bytes).hash);
    assert_eq!(house.send("PUT", &path, token_for(TokenRole::Submit), bytes, None).await.status, 204);
    request_without_reading(&house, &path).await;
}

#[tokio::test]
async fn follower_that_never_reads_is_disconnected() {
    let house = open_server().await;
    let lease = house.submit_and_lease().await;
    let mut at = house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    for turn in 1..=80 {
        let text = "x".repeat(200_000);
        at = house
            .append_ok(
                &lease,
                at,
                vec![super::event_fixtures::model_called(turn), model_answered_with(turn, &text)],
            )
            .await;
    }
    assert!(Seq(at) > Seq(150));
    request_without_reading(&house, &format!("/v1/runs/{}/follow", lease.run)).await;
}
