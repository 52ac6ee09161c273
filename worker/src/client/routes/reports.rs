//! What runs cost and how well tasks went.

use docket_schema::api::{CostPage, CostQuery, MetricsPage, MetricsQuery, OverviewResponse};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// How everything stands, what needs a person first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_overview(&self) -> Result<OverviewResponse, ClientError> {
        self.build_call("ask how everything stands", Method::GET, "/v1/overview").send_for_json().await
    }

    /// A page of what runs cost.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn get_cost(&self, query: &CostQuery) -> Result<CostPage, ClientError> {
        self.build_call("ask what runs cost", Method::GET, "/v1/cost")
            .with_optional_query("run", query.run)
            .with_optional_query("task", query.task)
            .with_optional_query("batch", query.batch)
            .with_optional_query("from", query.from)
            .with_optional_query("until", query.until)
            .with_optional_query("calls", query.calls.then_some(true))
            .with_optional_query("after", query.after.as_ref())
            .with_optional_query("limit", query.limit)
            .send_for_json()
            .await
    }

    /// A page of how well tasks went.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn get_metrics(&self, query: &MetricsQuery) -> Result<MetricsPage, ClientError> {
        self.build_call("ask how well tasks went", Method::GET, "/v1/metrics")
            .with_optional_query("task", query.task)
            .with_optional_query("batch", query.batch)
            .with_optional_query("from", query.from)
            .with_optional_query("until", query.until)
            .with_optional_query("scripted", query.scripted.then_some(true))
            .with_optional_query("after", query.after.as_ref())
            .with_optional_query("limit", query.limit)
            .send_for_json()
            .await
    }
}
