//! What is remembered beyond runs: a run's own, and people's.

use docket_schema::{
    ids::RunId,
    wire::{DeleteMemoryRequest, MemoryList, MemoryQuery, RunMemoryRequest, RunMemoryResponse},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// Saves, recalls or forgets for a run. Safe to repeat: a call changes something once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn run_memory(
        &self,
        run: RunId,
        request: &RunMemoryRequest,
    ) -> Result<RunMemoryResponse, ClientError> {
        let path = format!("/v1/runs/{run}/memory");
        self.call("ask a run's memory", Method::POST, &path).json(request)?.answer().await
    }

    /// What is remembered.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn memories(&self, query: &MemoryQuery) -> Result<MemoryList, ClientError> {
        self.call("list memories", Method::GET, "/v1/memory")
            .maybe("repository", query.repository.as_ref())
            .maybe("queue", query.queue.as_ref())
            .maybe("key", query.key.as_ref())
            .answer()
            .await
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn forget(&self, request: &DeleteMemoryRequest) -> Result<MemoryList, ClientError> {
        self.call("forget a memory", Method::POST, "/v1/memory/delete").json(request)?.answer().await
    }
}
