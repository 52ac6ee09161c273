//! Clients that are slow on purpose, over real sockets: each is given up within its limit, and who is only
//! idle is not.

use std::time::Duration;

use docket_schema::{content::BlobRef, ids::Seq};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::{
    events::{answered_with, started},
    support::{House, in_time, token},
};
use crate::{http::Role, server::Patience};

/// How often a slow client sends a byte; its patience is without end.
const TRICKLE: Duration = Duration::from_millis(20);

async fn house() -> House {
    let limit = Duration::from_millis(300);
    let idle = Duration::from_secs(600);
    let patience =
        Patience { idle, first: limit, head: limit, body: limit, stalled: limit, handshake: limit };
    House::with(|config| config.patience = patience).await
}

async fn connect(house: &House) -> TcpStream {
    TcpStream::connect(house.running.local_addr()).await.expect("connects")
}

/// Sends `first`, then a byte now and then until the other side has answered or gone. What it answered.
async fn trickle(house: &House, first: &str, byte: &[u8]) -> String {
    let mut stream = connect(house).await;
    stream.write_all(first.as_bytes()).await.expect("is taken");
    let (mut read, mut write) = stream.into_split();
    let answer = async {
        let mut answer = Vec::new();
        // A reset is an end, too.
        drop(read.read_to_end(&mut answer).await);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let feed = async {
        while write.write_all(byte).await.is_ok() {
            tokio::time::sleep(TRICKLE).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = in_time("an end", answer) => answer,
        () = feed => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn a_head_that_trickles_is_given_up_and_an_idle_connection_is_not() {
    let house = house().await;
    let mut idle = connect(&house).await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("is taken");
    let answer = trickle(&house, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ", b"y").await;
    assert_eq!(answer, "", "nothing was asked yet");
    let second = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nx: ";
    let answer = trickle(&house, second, b"y").await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "the first of two is answered: {answer}");
    let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    idle.write_all(request.as_bytes()).await.expect("still open");
    let mut answer = String::new();
    idle.read_to_string(&mut answer).await.expect("an answer");
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn who_connects_and_asks_nothing_is_given_up_soon() {
    let house = house().await;
    let mut silent = connect(&house).await;
    let mut answer = Vec::new();
    in_time("the end of a silent connection", silent.read_to_end(&mut answer)).await.expect("closed");
    assert!(answer.is_empty());
}

#[tokio::test]
async fn a_reader_who_sends_a_byte_keeps_its_stream() {
    let house = house().await;
    let lease = house.leased().await;
    let mut at = house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let mut stream = connect(&house).await;
    let request = format!(
        "GET /v1/runs/{}/follow HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        lease.run,
        token(Role::Admin)
    );
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let mut got = String::new();
    let mut wait_for = async |stream: &mut TcpStream, what: &str| {
        while !got.contains(what) {
            let mut some = [0; 4096];
            let read = in_time(what, stream.read(&mut some)).await.expect("reads");
            assert!(read > 0, "the stream was cut before {what}: {got}");
            got.push_str(&String::from_utf8_lossy(&some[..read]));
        }
    };
    wait_for(&mut stream, "RunStarted").await;
    // The first byte of a next request, perhaps: its time begins when this answer has ended.
    stream.write_all(b"G").await.expect("is taken");
    tokio::time::sleep(Duration::from_millis(900)).await;
    at = house.appended(&lease, at, vec![super::events::asked(1), answered_with(1, "still here")]).await;
    assert!(at > 1);
    wait_for(&mut stream, "still here").await;
}

#[tokio::test]
async fn a_body_that_trickles_is_refused() {
    let house = house().await;
    for length in ["content-length: 100000", "transfer-encoding: chunked"] {
        let head = format!(
            "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\n{length}\r\n\r\n",
            token(Role::Admin)
        );
        let byte: &[u8] = if length.starts_with("content") { b" " } else { b"1\r\n \r\n" };
        let answer = trickle(&house, &head, byte).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{length}: {answer}");
        assert!(answer.contains("application/problem+json") && answer.contains("did not come"), "{answer}");
    }
}

/// Asks with a small window and reads nothing. Ends once the server has given up.
async fn never_read(house: &House, path: &str) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_recv_buffer_size(4096).expect("small");
    let mut stream = socket.connect(house.running.local_addr()).await.expect("connects");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        token(Role::Admin)
    );
    stream.write_all(request.as_bytes()).await.expect("is taken");
    // What comes after the server has closed is answered with a reset, and the next write fails.
    let dropped = async {
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(TRICKLE).await;
        }
    };
    in_time("the end of a connection that nobody reads", dropped).await;
}

#[tokio::test]
async fn a_reader_of_a_large_blob_who_never_reads_is_dropped() {
    let house = house().await;
    let bytes = vec![7; 24 * 1024 * 1024];
    let path = format!("/v1/blobs/{}", BlobRef::of(&bytes).hash);
    assert_eq!(house.send("PUT", &path, token(Role::Submit), bytes, None).await.status, 204);
    never_read(&house, &path).await;
}

#[tokio::test]
async fn a_follower_who_never_reads_is_dropped() {
    let house = house().await;
    let lease = house.leased().await;
    let mut at = house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    for turn in 1..=80 {
        let text = "x".repeat(200_000);
        at = house.appended(&lease, at, vec![super::events::asked(turn), answered_with(turn, &text)]).await;
    }
    assert!(Seq(at) > Seq(150));
    never_read(&house, &format!("/v1/runs/{}/follow", lease.run)).await;
}
