//! Whether the process answers, and whether its store does. Open to everyone who reaches the port:
//! probes have no token, and the answers say nothing else but that the clock was stepped.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::{StreamId, SystemTopic},
    wire::{Health, ProblemCode},
};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};

/// A store that takes longer for one small read is not ready.
const STORE_ANSWER: Duration = Duration::from_secs(2);

pub(super) async fn healthz(_: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    json(&Health { status: "ok".to_owned(), clock: None })
}

pub(super) async fn readyz(api: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    let head = api.store.head(StreamId::System(SystemTopic::Anchors));
    match tokio::time::timeout(STORE_ANSWER, head).await {
        Ok(answer) => answer.map(|_| ())?,
        Err(_) => {
            return Err(Refusal::new(ProblemCode::Unavailable, "the store does not answer within 2 s"));
        }
    }
    if api.shutdown.is_cancelled() {
        return Err(Refusal::new(ProblemCode::Unavailable, "the coordinator is shutting down"));
    }
    // A step is a fact to look into, and is dealt with: it makes no coordinator unready.
    let clock = Some(api.clock.health()).filter(|clock| clock.steps > 0);
    json(&Health { status: "ok".to_owned(), clock })
}
