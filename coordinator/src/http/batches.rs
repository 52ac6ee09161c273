//! Routes of batches: how one stands, and which there are.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{ids::BatchId, wire::ProblemCode};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};

pub(super) async fn list(api: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    json(&api.store.batches().await?)
}

pub(super) async fn show(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let id: BatchId = call.id()?;
    match api.store.batch(id).await? {
        Some(view) => json(&view),
        None => Err(Refusal::new(ProblemCode::NotFound, format!("there is no task of batch {id}"))),
    }
}
