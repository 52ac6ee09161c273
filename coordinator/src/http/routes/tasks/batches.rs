//! Routes of batches: show one, list recent ones.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{api::ProblemCode, ids::BatchId};

use super::budgets;
use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

pub(in crate::http) async fn list_batches(
    api: Arc<ApiState>,
    _: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    json_response(&api.store.list_batches().await?)
}

pub(in crate::http) async fn show_batch(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let id: BatchId = call.id()?;
    if let Err(refusal) = budgets::count_batch_usage(&api, id).await {
        // A read-only store can still be read: return the figures counted before.
        tracing::warn!("cannot update the usage of batch {id}: {}", refusal.into_problem().detail);
    }
    match api.store.get_batch(id).await? {
        Some(view) => json_response(&view),
        None => Err(ApiError::new(ProblemCode::NotFound, format!("batch {id} has no tasks"))),
    }
}
