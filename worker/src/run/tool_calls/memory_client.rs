//! A run's memory that outlives it, over the coordinator's API. Called by the tools, through their own trait.

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

/// How long a call waits for a coordinator that is away: memory is worth less than a turn, and the model is told.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
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
                // In the coordinator's own words: they name what is wrong and its remedy.
                ClientError::Problem(problem) => problem.detail,
                other => format!("memory cannot be reached: {}", error_chain::format_chain(&other)),
            })
        })
    }
}
