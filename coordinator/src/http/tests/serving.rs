//! Starting, refusing to start, and what stands at the open doors.

use std::sync::Arc;

use docket_schema::wire::{Health, ProblemCode};
use serde_json::Value;

use super::support::{House, serve};
use crate::{
    clock::Clock,
    server::{Exposure, ServeError, ServerConfig, start},
};

async fn refusal(house: &House, config: ServerConfig) -> ServeError {
    match start(Arc::clone(&house.store), config, Arc::new(Clock::new())).await {
        Ok(running) => panic!("it serves at {}", running.local_addr()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_cannot_be_served_says_what_helps() {
    let house = House::open().await;
    let taken = ServerConfig::loopback(house.running.local_addr().port(), Vec::new());
    let error = refusal(&house, taken).await;
    assert!(matches!(error, ServeError::PortInUse(_)));
    assert!(error.to_string().contains("choose another port"), "{error}");
    let mut open = ServerConfig::loopback(0, Vec::new());
    open.bind = "0.0.0.0:0".parse().expect("address");
    assert!(matches!(refusal(&house, open.clone()).await, ServeError::NotLoopback(_)));
    let mut hasty = ServerConfig::loopback(0, Vec::new());
    hasty.lease_ms = 10;
    assert!(matches!(refusal(&house, hasty).await, ServeError::Times { .. }));
    open.exposure = Exposure::Open;
    let running = start(Arc::clone(&house.store), open, Arc::new(Clock::new())).await.expect("serves");
    let url = format!("http://127.0.0.1:{}/healthz", running.local_addr().port());
    let answer = house.client.get(url).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    running.shutdown().await;
}

#[tokio::test]
async fn open_doors_answer_without_a_token_and_say_nothing_else() {
    let house = House::open().await;
    for path in ["/healthz", "/readyz"] {
        let answer: Health = house.send("GET", path, "", Vec::new(), None).await.good();
        assert_eq!(answer.status, "ok");
    }
    let document: Value = house.send("GET", "/openapi.json", "", Vec::new(), None).await.good();
    assert_eq!(document["openapi"], "3.1.0");
    house.store.close().await;
    let answer = house.send("GET", "/readyz", "", Vec::new(), None).await;
    assert_eq!(answer.problem().code, ProblemCode::Unavailable);
}

#[tokio::test]
async fn after_shutdown_the_port_is_free_again() {
    let house = House::open().await;
    let running = serve(Arc::clone(&house.store), 30_000).await;
    let port = running.local_addr().port();
    running.shutdown().await;
    let config = ServerConfig::loopback(port, Vec::new());
    let again = start(Arc::clone(&house.store), config, Arc::new(Clock::new())).await.expect("serves");
    again.shutdown().await;
}
