//! How the queue stands.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::wire::Status;

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
    queues::heard_since,
};

pub(super) async fn status(api: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    let (tasks, workers) = api.store.status(heard_since(&api)).await?;
    let (version, store) = (env!("CARGO_PKG_VERSION").to_owned(), api.store.backend().to_owned());
    json(&Status { version, store, tasks, workers })
}
