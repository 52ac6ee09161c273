//! Starting, refusing to start, and the public routes.

use std::sync::Arc;

use docket_schema::api::{HealthResponse, ProblemCode};
use serde_json::Value;

use super::support::{TestServer, serve};
use crate::{
    clock::Clock,
    server::{ListenExposure, ServeError, ServerConfig, start_server},
};

async fn serve_error(house: &TestServer, config: ServerConfig) -> ServeError {
    match start_server(Arc::clone(&house.store), config, Arc::new(Clock::new())).await {
        Ok(running) => panic!("it serves at {}", running.local_addr()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn invalid_server_settings_explain_the_fix() {
    let house = TestServer::start().await;
    let taken = ServerConfig::loopback(house.server.local_addr().port(), Vec::new());
    let error = serve_error(&house, taken).await;
    assert!(matches!(error, ServeError::PortInUse(_)));
    assert!(error.to_string().contains("choose another port"), "{error}");
    let mut open = ServerConfig::loopback(0, Vec::new());
    open.bind = "0.0.0.0:0".parse().expect("address");
    assert!(matches!(serve_error(&house, open.clone()).await, ServeError::NotLoopback(_)));
    let mut hasty = ServerConfig::loopback(0, Vec::new());
    hasty.lease_ms = 10;
    assert!(matches!(serve_error(&house, hasty).await, ServeError::InvalidLeaseTimes { .. }));
    open.exposure = ListenExposure::Open;
    let running = start_server(Arc::clone(&house.store), open, Arc::new(Clock::new())).await.expect("serves");
    let url = format!("http://127.0.0.1:{}/healthz", running.local_addr().port());
    let answer = house.client.get(url).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    running.shutdown().await;
}

#[tokio::test]
async fn public_routes_answer_without_a_token_and_reveal_nothing_else() {
    let house = TestServer::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer: HealthResponse = house.send("GET", path, "", Vec::new(), None).await.parse_success();
        assert_eq!(answer.status, "ok");
    }
    let document: Value = house.send("GET", "/openapi.json", "", Vec::new(), None).await.parse_success();
    assert_eq!(document["openapi"], "3.1.0");
    house.store.close().await;
    let answer = house.send("GET", "/readyz", "", Vec::new(), None).await;
    assert_eq!(answer.parse_problem().code, ProblemCode::Unavailable);
}

#[tokio::test]
async fn shutdown_frees_the_port() {
    let house = TestServer::start().await;
    let running = serve(Arc::clone(&house.store), 30_000).await;
    let port = running.local_addr().port();
    running.shutdown().await;
    let config = ServerConfig::loopback(port, Vec::new());
    let again = start_server(Arc::clone(&house.store), config, Arc::new(Clock::new())).await.expect("serves");
    again.shutdown().await;
}
