//! Resolves abbreviated IDs.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::api::ProblemCode;

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};

/// Digits of a full ID without hyphens.
const ID_DIGITS: usize = 32;

pub(in crate::http) async fn resolve_id(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let digits: String = call
        .path_param
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_ascii_lowercase())
        .take(ID_DIGITS + 1)
        .collect();
    let legal =
        !digits.is_empty() && digits.len() <= ID_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !legal {
        let detail = "specify 1 to 32 hexadecimal digits from the start or end of an id";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("path"));
    }
    json_response(&api.store.resolve_id(digits).await?)
}
