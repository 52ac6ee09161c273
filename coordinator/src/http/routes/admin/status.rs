//! The route that returns the state of the queue.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::api::CoordinatorStatus;

use super::queues::workers_seen_since;
use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

pub(in crate::http) async fn show_status(
    api: Arc<ApiState>,
    _: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let (tasks, workers) = api.store.read_status(workers_seen_since(&api)).await?;
    let (version, store) = (env!("CARGO_PKG_VERSION").to_owned(), api.store.backend().to_owned());
    json_response(&CoordinatorStatus { version, store, tasks, workers })
}
