//! Calls about many tasks: lists, batches, bulk actions on a filter's matches.

use docket_schema::{
    api::{
        BatchList, BatchView, BudgetUpdateMode, BudgetView, BulkRequest, BulkResponse, SetBudgetRequest,
        TaskPage, TaskQuery,
    },
    ids::BatchId,
    system::Budget,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

/// Time limit for a page of a bulk action: hundreds of commands on a slow disk.
const BULK_WAIT_MS: u64 = 60_000;

impl CoordinatorClient {
    /// Returns a page of tasks.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_tasks(&self, query: &TaskQuery) -> Result<TaskPage, ClientError> {
        self.build_call("list tasks", Method::GET, "/v1/tasks")
            .with_optional_query("state", query.state.as_ref())
            .with_optional_query("queue", query.queue.as_ref())
            .with_optional_query("batch", query.batch)
            .with_optional_query("engine", query.engine.as_ref())
            .with_optional_query("worker", query.worker.as_ref())
            .with_optional_query("model", query.model.as_ref())
            .with_optional_query("title", query.title.as_ref())
            .with_optional_query("since", query.since)
            .with_optional_query("until", query.until)
            .with_optional_query("limit", query.limit)
            .with_optional_query("before", query.before)
            .send_for_json()
            .await
    }

    /// Applies one action to a page of tasks.
    ///
    /// # Errors
    /// [`ClientError`]; part of the page may then be done, and the same page can be sent again.
    pub async fn apply_bulk_action(&self, request: &BulkRequest) -> Result<BulkResponse, ClientError> {
        self.build_call("apply a bulk action", Method::POST, "/v1/tasks/bulk")
            .with_server_wait(BULK_WAIT_MS)
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Returns the state of a batch.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_batch(&self, batch: BatchId) -> Result<BatchView, ClientError> {
        self.build_call("read a batch", Method::GET, &format!("/v1/batches/{batch}")).send_for_json().await
    }

    /// Sets a batch's budget. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn set_budget(
        &self,
        batch: BatchId,
        budget: Budget,
        how: BudgetUpdateMode,
    ) -> Result<BudgetView, ClientError> {
        let path = format!("/v1/batches/{batch}/budget");
        self.build_call("set a budget", Method::POST, &path)
            .with_json(&SetBudgetRequest { budget, how })?
            .send_for_json()
            .await
    }

    /// Lists the batches of the newest tasks.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_batches(&self) -> Result<BatchList, ClientError> {
        self.build_call("list batches", Method::GET, "/v1/batches").send_for_json().await
    }
}
