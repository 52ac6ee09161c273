//! What runs cost and how well tasks went.

use docket_schema::wire::{CostPage, CostQuery, MetricsPage, MetricsQuery, Overview};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// How everything stands, what needs a person first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn overview(&self) -> Result<Overview, ClientError> {
        self.call("ask how everything stands", Method::GET, "/v1/overview").answer().await
    }

    /// A page of what runs cost.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn cost(&self, query: &CostQuery) -> Result<CostPage, ClientError> {
        self.call("ask what runs cost", Method::GET, "/v1/cost")
            .maybe("run", query.run)
            .maybe("task", query.task)
            .maybe("batch", query.batch)
            .maybe("from", query.from)
            .maybe("until", query.until)
            .maybe("calls", query.calls.then_some(true))
            .maybe("after", query.after.as_ref())
            .maybe("limit", query.limit)
            .answer()
            .await
    }

    /// A page of how well tasks went.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn metrics(&self, query: &MetricsQuery) -> Result<MetricsPage, ClientError> {
        self.call("ask how well tasks went", Method::GET, "/v1/metrics")
            .maybe("task", query.task)
            .maybe("batch", query.batch)
            .maybe("from", query.from)
            .maybe("until", query.until)
            .maybe("scripted", query.scripted.then_some(true))
            .maybe("after", query.after.as_ref())
            .maybe("limit", query.limit)
            .answer()
            .await
    }
}
