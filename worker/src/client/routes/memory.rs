//! Memories that outlive runs: calls of runs and of people.

use docket_schema::{
    api::{DeleteMemoryRequest, MemoryList, MemoryQuery, RunMemoryRequest, RunMemoryResponse},
    ids::RunId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Saves, recalls or forgets a memory for a run. Safe to repeat: a call takes effect once.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn call_run_memory(
        &self,
        run: RunId,
        request: &RunMemoryRequest,
    ) -> Result<RunMemoryResponse, ClientError> {
        let path = format!("/v1/runs/{run}/memory");
        self.build_call("call a run's memory", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Lists memories.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_memories(&self, query: &MemoryQuery) -> Result<MemoryList, ClientError> {
        self.build_call("list memories", Method::GET, "/v1/memory")
            .with_optional_query("repository", query.repository.as_ref())
            .with_optional_query("queue", query.queue.as_ref())
            .with_optional_query("key", query.key.as_ref())
            .send_for_json()
            .await
    }

    /// Deletes a memory.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it does not exist.
    pub async fn delete_memory(&self, request: &DeleteMemoryRequest) -> Result<MemoryList, ClientError> {
        self.build_call("delete a memory", Method::POST, "/v1/memory/delete")
            .with_json(request)?
            .send_for_json()
            .await
    }
}
