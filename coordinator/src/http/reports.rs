//! Routes of reports: what runs cost, and how well tasks went.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::wire::{CostQuery, MetricsQuery, ProblemCode};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};
use crate::reports::{self, ReportError};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn cost(api: Arc<Api>, call: Call) -> Answered {
    let query: CostQuery = call.query()?;
    json(&reports::cost(&*api.store, &query).await.map_err(refusal)?)
}

pub(super) async fn metrics(api: Arc<Api>, call: Call) -> Answered {
    let query: MetricsQuery = call.query()?;
    json(&reports::metrics(&*api.store, &query).await.map_err(refusal)?)
}

pub(super) fn refusal(error: ReportError) -> Refusal {
    match error {
        ReportError::Query { field, detail } => {
            Refusal::new(ProblemCode::InvalidRequest, detail).field(field)
        }
        ReportError::Absent(what) => Refusal::new(ProblemCode::NotFound, format!("there is no {what}")),
        ReportError::Store(error) => error.into(),
    }
}
