//! Only callers that exceed their rate are limited.

use std::net::{IpAddr, Ipv4Addr};

use docket_schema::api::ProblemCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::support::{TestServer, token_for, within_time};
use crate::http::TokenRole;

fn client_from(last: u8) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let from = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    reqwest::Client::builder().no_proxy().local_address(from).build().expect("client")
}

async fn get_tasks(house: &TestServer, client: &reqwest::Client, token: &str) -> reqwest::Response {
    let url = house.server.url() + "/v1/status";
    client.get(url).bearer_auth(token).send().await.expect("answer")
}

#[tokio::test]
async fn rate_limits_apply_per_token_and_per_address() {
    // A token gets one per second and a burst of two; an address four per second and a burst of eight.
    let house = TestServer::start_with(|config| config.rate_limits.requests_per_second = 1).await;
    let one = client_from(2);
    let mut refused = get_tasks(&house, &one, token_for(TokenRole::Read)).await;
    assert_eq!(refused.status(), 200);
    // Three, to allow for time passing.
    for _ in 0..100 {
        if refused.status() != 429 {
            refused = get_tasks(&house, &one, token_for(TokenRole::Read)).await;
        }
    }
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let problem: docket_schema::api::ProblemDetails = refused.json().await.expect("a problem");
    assert_eq!(problem.code, ProblemCode::TooMany);
    assert_eq!(
        get_tasks(&house, &one, token_for(TokenRole::Submit)).await.status(),
        200,
        "another token of the address"
    );
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses
            .push(one.get(house.server.url() + "/healthz").send().await.expect("answer").status().as_u16());
    }
    assert!(statuses.contains(&429), "open doors count for the address: {statuses:?}");
    assert_eq!(
        get_tasks(&house, &client_from(3), token_for(TokenRole::Worker)).await.status(),
        200,
        "another address"
    );
}

#[tokio::test]
async fn wrong_tokens_are_limited_without_blocking_valid_ones() {
    let house = TestServer::start_with(|config| config.rate_limits.auth_failures_per_minute = 5).await;
    let one = client_from(2);
    let mut statuses = Vec::new();
    for n in 0..8 {
        statuses.push(get_tasks(&house, &one, &format!("guess-{n}")).await.status().as_u16());
    }
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429, 429]);
    assert_eq!(
        get_tasks(&house, &one, token_for(TokenRole::Read)).await.status(),
        200,
        "a right one, from the same address"
    );
    assert_eq!(
        get_tasks(&house, &client_from(3), "guess").await.status(),
        401,
        "another address has its own"
    );
}

async fn connect_from(house: &TestServer, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).expect("binds");
    socket.connect(house.server.local_addr()).await.expect("connects")
}

/// Whether the server replies on the connection.
async fn gets_reply(stream: &mut TcpStream, token: &str) -> bool {
    let request = if token.is_empty() {
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned()
    } else {
        format!("HEAD /v1/status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n")
    };
    if stream.write_all(request.as_bytes()).await.is_err() {
        return false;
    }
    let mut first = [0; 12];
    if stream.read_exact(&mut first).await.is_err() {
        return false;
    }
    // Reads the rest of the head; another response follows on the connection.
    let mut last = [0; 4];
    while &last != b"\r\n\r\n" {
        let Ok(byte) = stream.read_u8().await else { return false };
        last.rotate_left(1);
        last[3] = byte;
    }
    first.starts_with(b"HTTP/1.1 2")
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let house =
        TestServer::start_with(|config| (config.connections_max, config.connections_per_peer) = (8, 1)).await;
    let mut held = Vec::new();
    // One of the eight may still be in use by the fixture.
    for _ in 0..6 {
        let mut stream = connect_from(&house, 9).await;
        assert!(gets_reply(&mut stream, token_for(TokenRole::Read)).await);
        held.push(stream);
    }
    assert!(
        !gets_reply(&mut connect_from(&house, 9).await, "").await,
        "six of eight are the most of loopback"
    );
    assert!(gets_reply(&mut connect_from(&house, 10).await, "").await, "another address is served");
    drop(held.pop());
    within_time("a free seat", async { while !gets_reply(&mut connect_from(&house, 9).await, "").await {} })
        .await;
}

#[tokio::test]
async fn unauthenticated_connections_do_not_exhaust_the_limit() {
    let house =
        TestServer::start_with(|config| (config.connections_max, config.connections_per_peer) = (8, 1)).await;
    let mut good = connect_from(&house, 9).await;
    assert!(gets_reply(&mut good, token_for(TokenRole::Read)).await);
    let mut idle = Vec::new();
    for n in 0..40 {
        let mut stream = connect_from(&house, 9 + n % 4).await;
        if n % 2 == 0 {
            // Public routes and invalid tokens do not count as authentication.
            let _ = gets_reply(&mut stream, if n % 4 == 0 { "" } else { "guess" }).await;
        }
        idle.push(stream);
    }
    for last in [9, 10, 20] {
        let fresh = within_time("a seat", async {
            gets_reply(&mut connect_from(&house, last).await, token_for(TokenRole::Read)).await
        });
        assert!(fresh.await, "a valid token gets a connection");
    }
    assert!(gets_reply(&mut good, token_for(TokenRole::Read)).await, "an authenticated connection is kept");
}

#[tokio::test]
async fn unauthenticated_requests_do_not_limit_valid_tokens_of_an_address() {
    // An address has a burst of eight, then four per second.
    let house = TestServer::start_with(|config| config.rate_limits.requests_per_second = 1).await;
    let one = client_from(2);
    for (path, token) in [("/healthz", ""), ("/v1/status", "guess"), ("/none", ""), ("/v1/status", "")] {
        let mut last = 0;
        for _ in 0..100 {
            let mut request = one.get(house.server.url() + path);
            if !token.is_empty() {
                request = request.bearer_auth(token);
            }
            last = request.send().await.expect("answer").status().as_u16();
            if last == 429 {
                break;
            }
        }
        assert_eq!(last, 429, "{path} counts for the address");
    }
    assert_eq!(
        get_tasks(&house, &one, token_for(TokenRole::Read)).await.status(),
        200,
        "a good one has its own"
    );
}
