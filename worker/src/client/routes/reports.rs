//! Reports on the cost of runs and the outcomes of tasks.

use docket_schema::api::{CostPage, CostQuery, MetricsPage, MetricsQuery, OverviewResponse};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Returns the overview, starting with items that need a person.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_overview(&self) -> Result<OverviewResponse, ClientError> {
        self.build_call("read the overview", Method::GET, "/v1/overview").send_for_json().await
    }

    /// Returns a page of the runs' costs.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if the query names something that does not exist.
    pub async fn get_cost(&self, query: &CostQuery) -> Result<CostPage, ClientError> {
        self.build_call("read costs", Method::GET, "/v1/cost")
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

    /// Returns a page of task metrics.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if the query names something that does not exist.
    pub async fn get_metrics(&self, query: &MetricsQuery) -> Result<MetricsPage, ClientError> {
        self.build_call("read metrics", Method::GET, "/v1/metrics")
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
