//! Routes of batches: how one stands, and which there are.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{ids::BatchId, wire::ProblemCode};

use super::{
    api::Api,
    budgets,
    call::{Call, json},
    errors::Refusal,
};

pub(super) async fn list(api: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    json(&api.store.batches().await?)
}

pub(super) async fn show(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let id: BatchId = call.id()?;
    if let Err(refusal) = budgets::count(&api, id).await {
        // A store that cannot be written to can be looked at: what was counted before stands there.
        tracing::warn!("what batch {id} uses is not counted for now: {}", refusal.into_problem().detail);
    }
    match api.store.batch(id).await? {
        Some(view) => json(&view),
        None => Err(Refusal::new(ProblemCode::NotFound, format!("there is no task of batch {id}"))),
    }
}
