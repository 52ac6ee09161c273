//! Host, origin and site checks, and response headers: pages of other sites cannot reach the API.

use docket_schema::api::ProblemCode;
use serde_json::json;

use super::{
    event_fixtures::task_spec,
    support::{TestServer, send_raw, token_for},
};
use crate::{http::TokenRole, server::ListenExposure};

/// A path of each kind: public, restricted, unknown.
const PATHS: [&str; 3] = ["/healthz", "/v1/tasks", "/no/such/route"];

#[tokio::test]
async fn other_hosts_origins_and_sites_are_rejected_on_every_path() {
    let house = TestServer::start().await;
    let own = house.server.local_addr();
    let near = format!("http://localhost:{}", own.port());
    for (header, value) in [
        ("host", "evil.example"),
        ("host", "127.0.0.1.evil.example:80"),
        ("host", "10.0.0.1"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:1"),
        ("origin", &near),
        ("origin", "file://"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "whatever"),
    ] {
        for path in PATHS {
            for method in ["GET", "OPTIONS", "POST"] {
                let answer = house
                    .send(method, path, token_for(TokenRole::Admin), Vec::new(), Some((header, value)))
                    .await;
                let problem = answer.parse_problem();
                assert_eq!(
                    (problem.code, problem.field.as_deref()),
                    (ProblemCode::Forbidden, Some(header)),
                    "{method} {path} {value}"
                );
            }
        }
    }
    let own_origin = house.server.url();
    for (header, value) in
        [("origin", own_origin.as_str()), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")]
    {
        let answer = house
            .send("GET", "/v1/tasks", token_for(TokenRole::Admin), Vec::new(), Some((header, value)))
            .await;
        assert_eq!(answer.status, 200, "{header}: {value}");
    }
    let host = format!("LocalHost:{}", own.port());
    let answer =
        house.send("GET", "/v1/tasks", token_for(TokenRole::Admin), Vec::new(), Some(("host", &host))).await;
    assert_eq!(answer.status, 200, "{host}");
}

#[tokio::test]
async fn host_names_are_accepted_only_if_configured() {
    let house = TestServer::start_with(|config| {
        config.bind = "0.0.0.0:0".parse().expect("address");
        config.exposure = ListenExposure::Open;
        config.hosts = vec!["docket.example".to_owned()];
    })
    .await;
    let url = format!("http://127.0.0.1:{}/healthz", house.server.local_addr().port());
    for (host, status) in
        [("docket.example", 200), ("DOCKET.example:443", 200), ("coordinator.internal", 403)]
    {
        let answer = house.client.get(&url).header("host", host).send().await.expect("answer");
        assert_eq!(answer.status(), status, "{host}");
    }
}

#[tokio::test]
async fn every_response_has_nosniff_and_no_cors_headers() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let blob =
        format!("/v1/blobs/{}", docket_schema::ids::BlobHash::hash_bytes(super::event_fixtures::MANIFEST));
    let follow = format!("/v1/runs/{}/follow", lease.run);
    let openapi = "/openapi.json".to_owned();
    for path in PATHS.map(str::to_owned).into_iter().chain([blob, follow, openapi, "/v1/tasks/x".to_owned()])
    {
        for method in ["GET", "OPTIONS", "DELETE"] {
            let request = house.client.request(method.parse().expect("method"), house.server.url() + &path);
            let asked = request
                .bearer_auth(token_for(TokenRole::Admin))
                .header("access-control-request-method", "PUT");
            let answer = asked.send().await.expect("answer");
            let headers = answer.headers();
            assert_eq!(headers["x-content-type-options"], "nosniff", "{method} {path}");
            assert!(headers.contains_key("cache-control"), "{method} {path}");
            let cors = headers.keys().find(|name| name.as_str().starts_with("access-control"));
            assert_eq!(cors, None, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn json_bodies_require_the_json_content_type() {
    let house = TestServer::start().await;
    let body = json!({ "tasks": [task_spec("a")] }).to_string().into_bytes();
    for header in [
        None,
        Some(("content-type", "text/plain")),
        Some(("content-type", "application/x-www-form-urlencoded")),
        Some(("content-type", "multipart/form-data; boundary=x")),
        Some(("content-type", "application/jsonx")),
        Some(("content-type", "")),
    ] {
        let answer = house.send("POST", "/v1/tasks", token_for(TokenRole::Admin), body.clone(), header).await;
        assert_eq!(answer.parse_problem().code, ProblemCode::UnsupportedMedia, "{header:?}");
    }
    let good = Some(("content-type", "Application/JSON; charset=utf-8"));
    let answer = house.send("POST", "/v1/tasks", token_for(TokenRole::Admin), body, good).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn oversized_request_heads_are_rejected() {
    let house = TestServer::start().await;
    let long = |n: usize| format!("/v1/tasks?queue={}", "q".repeat(n));
    let problem = house.get(&long(9000)).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::TooLarge, Some("path")));
    let problem = house.get(&format!("/v1/tasks?{}", "limit=1&".repeat(100))).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::TooLarge, Some("query")));
    // hyper answers these itself without a body and closes the connection.
    let answer =
        send_raw(&house, &format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", long(100_000))).await;
    assert!(answer.starts_with("HTTP/1.1 414") || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = (0..100).fold(house.client.get(house.server.url() + "/healthz"), |request, n| {
        request.header(format!("x-{n}"), "y")
    });
    assert_eq!(many.send().await.expect("answer").status(), 431);
    assert_eq!(house.get("/healthz").await.status, 200, "the coordinator continues");
}

#[tokio::test]
async fn duplicate_security_headers_are_rejected() {
    let house = TestServer::start().await;
    let good = format!("http://{}", house.server.local_addr());
    for (header, value) in [("host", "localhost"), ("origin", good.as_str()), ("sec-fetch-site", "none")] {
        let host = if header == "host" { "" } else { "host: localhost\r\n" };
        let host = if header == "origin" {
            format!("host: {}\r\n", house.server.local_addr())
        } else {
            host.to_owned()
        };
        let line = format!("{header}: {value}\r\n");
        for (times, status) in [(1, "200"), (2, "403")] {
            let lines = line.repeat(times);
            let request = format!("GET /healthz HTTP/1.1\r\n{host}{lines}connection: close\r\n\r\n");
            let answer = send_raw(&house, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{times} {header}: {answer}");
        }
    }
}

#[tokio::test]
async fn role_error_names_the_accepted_roles() {
    let house = TestServer::start().await;
    for (method, path, by, says) in [
        (
            "GET",
            "/v1/tasks",
            TokenRole::Worker,
            "tokens with role worker may not call this route; it requires a token with role read or submit or admin",
        ),
        ("POST", "/v1/gc", TokenRole::Submit, "requires a token with role admin"),
        ("POST", "/v1/runs/x/append", TokenRole::Admin, "requires a run's own token"),
    ] {
        let problem = house.send(method, path, token_for(by), Vec::new(), None).await.parse_problem();
        assert!(problem.detail.contains(says), "{path}: {}", problem.detail);
    }
}
