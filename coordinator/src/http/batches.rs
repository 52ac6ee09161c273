//! Routes of batches: how one stands, and which there are.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{api::ProblemCode, ids::BatchId};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    budgets,
    request::{ApiRequest, json_response},
};

pub(super) async fn list_batches(api: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
    json_response(&api.store.list_batches().await?)
}

pub(super) async fn show_batch(api: Arc<ApiState>, call: ApiRequest) -> Result<Response<Body>, ApiError> {
    let id: BatchId = call.id()?;
    if let Err(refusal) = budgets::count_batch_usage(&api, id).await {
        // A store that cannot be written to can be looked at: what was counted before stands there.
        tracing::warn!("what batch {id} uses is not counted for now: {}", refusal.into_problem().detail);
    }
    match api.store.get_batch(id).await? {
        Some(view) => json_response(&view),
        None => Err(ApiError::new(ProblemCode::NotFound, format!("there is no task of batch {id}"))),
    }
}
