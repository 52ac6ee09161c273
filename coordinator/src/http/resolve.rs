//! Whole ids from a few of their digits.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::wire::ProblemCode;

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};

/// Digits of a whole id, hyphens left out.
const ID_DIGITS: usize = 32;

pub(super) async fn resolve(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let digits: String = call
        .param
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_ascii_lowercase())
        .take(ID_DIGITS + 1)
        .collect();
    let legal =
        !digits.is_empty() && digits.len() <= ID_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !legal {
        let detail = "give 1 to 32 hexadecimal digits of an id, its first or its last ones";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("path"));
    }
    json(&api.store.resolve(digits).await?)
}
