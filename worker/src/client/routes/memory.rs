//! What is remembered beyond runs: a run's own, and people's.

use docket_schema::{
    api::{DeleteMemoryRequest, MemoryList, MemoryQuery, RunMemoryRequest, RunMemoryResponse},
    ids::RunId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Saves, recalls or forgets for a run. Safe to repeat: a call changes something once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn call_run_memory(
        &self,
        run: RunId,
        request: &RunMemoryRequest,
    ) -> Result<RunMemoryResponse, ClientError> {
        let path = format!("/v1/runs/{run}/memory");
        self.build_call("ask a run's memory", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// What is remembered.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_memories(&self, query: &MemoryQuery) -> Result<MemoryList, ClientError> {
        self.build_call("list memories", Method::GET, "/v1/memory")
            .with_optional_query("repository", query.repository.as_ref())
            .with_optional_query("queue", query.queue.as_ref())
            .with_optional_query("key", query.key.as_ref())
            .send_for_json()
            .await
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn delete_memory(&self, request: &DeleteMemoryRequest) -> Result<MemoryList, ClientError> {
        self.build_call("forget a memory", Method::POST, "/v1/memory/delete")
            .with_json(request)?
            .send_for_json()
            .await
    }
}
