//! Client of the memory that outlives a run, over the coordinator's API. Tools call it through their own trait.

use std::time::{Duration, Instant};

use docket_schema::{
    api::{RunMemoryRequest, RunMemoryResponse},
    ids::RunId,
};
use futures_util::future::BoxFuture;

use crate::run::errors::error_chain;
use crate::{
    client::{ClientError, CoordinatorClient, retry_until},
    tools::MemoryBackend,
};

/// How long a call waits for an unavailable coordinator: memory is worth less than a turn, so the call then fails.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);

/// Memory access for one run.
pub(in crate::run) struct RunMemoryClient {
    client: CoordinatorClient,
    run: RunId,
}

impl RunMemoryClient {
    pub(in crate::run) const fn new(client: CoordinatorClient, run: RunId) -> Self {
        Self { client, run }
    }
}

impl MemoryBackend for RunMemoryClient {
    fn execute(&self, request: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>> {
        Box::pin(async move {
            let asked = retry_until(Instant::now() + MEMORY_PATIENCE, || {
                self.client.call_run_memory(self.run, &request)
            });
            asked.await.map_err(|error| match error {
                // The coordinator's own text names the problem and its remedy.
                ClientError::Problem(problem) => problem.detail,
                other => format!("memory cannot be reached: {}", error_chain::format_chain(&other)),
            })
        })
    }
}
