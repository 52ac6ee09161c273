//! Whether the process answers, and whether it can do its work. Open to all who reach the port: probes have no token.
//! The answers say that the clock was stepped and, where the coordinator is not ready, why: with the text of the
//! database's own error, which names a role, a database or a table, and no password.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{HealthResponse, ProblemCode},
    ids::{StreamId, SystemTopic},
};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

/// A store that takes longer for one small read is not ready.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the coordinator should get no requests now, if this check knows a reason.
type ReadinessCheck = fn(&ApiState) -> Option<String>;

/// Checked in this order, before the store is read; the first reason is the answer.
const READINESS_CHECKS: &[ReadinessCheck] = &[check_shutdown, check_writers];

pub(super) async fn healthz(_: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
    json_response(&HealthResponse { status: "ok".to_owned(), clock: None })
}

pub(super) async fn readyz(api: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
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
            return Err(unready(format!("the store does not answer within {seconds} s")));
        }
    }
    // A step is a fact to look into, and is dealt with: it makes no coordinator unready.
    let clock = Some(api.clock.health()).filter(|clock| clock.steps > 0);
    json_response(&HealthResponse { status: "ok".to_owned(), clock })
}

fn check_shutdown(api: &ApiState) -> Option<String> {
    api.shutdown.is_cancelled().then(|| "the coordinator is shutting down".to_owned())
}

fn check_writers(api: &ApiState) -> Option<String> {
    api.store.writer_stall().map(|stall| stall.to_string())
}
