//! How the queue stands.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{ids::Timestamp, wire::Status};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};

/// A worker is shown for this many lease times after it was last heard of.
const LEASES_SHOWN: u64 = 3;

pub(super) async fn status(api: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    let shown_us = api.limits.lease_ms.saturating_mul(LEASES_SHOWN).saturating_mul(1000);
    let since = Timestamp(api.clock.now().0.saturating_sub_unsigned(shown_us));
    let (tasks, workers) = api.store.status(since).await?;
    let (version, store) = (env!("CARGO_PKG_VERSION").to_owned(), api.store.backend().to_owned());
    json(&Status { version, store, tasks, workers })
}
