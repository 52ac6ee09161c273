//! Calls about many tasks: lists, batches, acts on all that a filter means.

use docket_schema::{
    ids::BatchId,
    system::Budget,
    wire::{
        BatchList, BatchView, BudgetView, BulkRequest, BulkResponse, SetBudget, SetBudgetRequest, TaskPage,
        TaskQuery,
    },
};
use reqwest::Method;

use crate::client::{Client, ClientError};

/// How long a page of a bulk act may take: hundreds of commands, on a disk that is slow.
const BULK_MS: u64 = 60_000;

impl Client {
    /// A page of tasks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn tasks(&self, query: &TaskQuery) -> Result<TaskPage, ClientError> {
        self.call("list tasks", Method::GET, "/v1/tasks")
            .maybe("state", query.state.as_ref())
            .maybe("queue", query.queue.as_ref())
            .maybe("batch", query.batch)
            .maybe("engine", query.engine.as_ref())
            .maybe("worker", query.worker.as_ref())
            .maybe("model", query.model.as_ref())
            .maybe("title", query.title.as_ref())
            .maybe("since", query.since)
            .maybe("until", query.until)
            .maybe("limit", query.limit)
            .maybe("before", query.before)
            .answer()
            .await
    }

    /// Does one thing to a page of tasks.
    ///
    /// # Errors
    /// [`ClientError`]; a part of the page may be done then, and the same page may be sent again.
    pub async fn bulk(&self, request: &BulkRequest) -> Result<BulkResponse, ClientError> {
        self.call("act on tasks", Method::POST, "/v1/tasks/bulk").waits(BULK_MS).json(request)?.answer().await
    }

    /// How a batch stands.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn batch(&self, batch: BatchId) -> Result<BatchView, ClientError> {
        self.call("read a batch", Method::GET, &format!("/v1/batches/{batch}")).answer().await
    }

    /// Sets what a batch may use. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_budget(
        &self,
        batch: BatchId,
        budget: Budget,
        how: SetBudget,
    ) -> Result<BudgetView, ClientError> {
        let path = format!("/v1/batches/{batch}/budget");
        self.call("set a budget", Method::POST, &path).json(&SetBudgetRequest { budget, how })?.answer().await
    }

    /// The batches of the newest tasks.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn batches(&self) -> Result<BatchList, ClientError> {
        self.call("list batches", Method::GET, "/v1/batches").answer().await
    }
}
