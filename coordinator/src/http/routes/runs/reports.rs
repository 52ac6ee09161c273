//! Routes of reports: costs of runs and task metrics.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::api::{CostQuery, MetricsQuery, ProblemCode};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};
use crate::reports::{self, ReportError};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn show_cost(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: CostQuery = call.query()?;
    json_response(&reports::cost_report(&*api.store, &query).await.map_err(report_error)?)
}

pub(in crate::http) async fn show_metrics(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let query: MetricsQuery = call.query()?;
    json_response(&reports::metrics_report(&*api.store, &query).await.map_err(report_error)?)
}

pub(in crate::http) fn report_error(error: ReportError) -> ApiError {
    match error {
        ReportError::Query { field, detail } => {
            ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field)
        }
        ReportError::NotFound(what) => ApiError::new(ProblemCode::NotFound, format!("there is no {what}")),
        ReportError::Store(error) => error.into(),
    }
}
