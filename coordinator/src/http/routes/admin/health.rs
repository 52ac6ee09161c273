//! Liveness and readiness. Public, because probes have no token. Responses report clock steps and
//! why the coordinator is not ready, including the text of database errors, which may name a role,
//! a database or a table, but never a password.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{HealthResponse, ProblemCode},
    ids::{StreamId, SystemTopic},
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

/// A store that takes longer for one small read counts as not ready.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns why the coordinator should not receive requests, if this check finds a reason.
type ReadinessCheck = fn(&ApiState) -> Option<String>;

/// Run in this order before the store is read; the first reason is reported.
const READINESS_CHECKS: &[ReadinessCheck] = &[check_shutdown, check_writers];

pub(in crate::http) async fn healthz(_: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
    json_response(&HealthResponse { status: "ok".to_owned(), clock: None })
}

pub(in crate::http) async fn readyz(api: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
    let unready = |reason: String| ApiError::new(ProblemCode::Unavailable, reason);
    if let Some(reason) = READINESS_CHECKS.iter().find_map(|check| check(&api)) {
        return Err(unready(reason));
    }
    let looked = async {
        api.store.stream_head(StreamId::System(SystemTopic::Anchors)).await?;
        api.store.check_writable().await
    };
    match tokio::time::timeout(STORE_TIMEOUT, looked).await {
        Ok(answer) => answer?,
        Err(_) => {
            let seconds = STORE_TIMEOUT.as_secs();
            return Err(unready(format!("the store did not respond within {seconds} s")));
        }
    }
    // A clock step should be investigated, but it was handled and does not make the coordinator
    // unready.
    let clock = Some(api.clock.health()).filter(|clock| clock.steps > 0);
    json_response(&HealthResponse { status: "ok".to_owned(), clock })
}

fn check_shutdown(api: &ApiState) -> Option<String> {
    api.shutdown.is_cancelled().then(|| "the coordinator is shutting down".to_owned())
}

fn check_writers(api: &ApiState) -> Option<String> {
    api.store.writer_stall().map(|stall| stall.to_string())
}
