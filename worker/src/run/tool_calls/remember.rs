//! A run's memory that outlives it, over the coordinator's API. Called by the tools, through their own trait.

use std::time::{Duration, Instant};

use docket_schema::{
    ids::RunId,
    wire::{RunMemoryRequest, RunMemoryResponse},
};
use futures_util::future::BoxFuture;

use crate::run::errors::causes;
use crate::{
    client::{Client, ClientError, patiently},
    tools::Memory,
};

/// How long a call waits for a coordinator that is away: memory is worth less than a turn, and the model is told.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
pub(in crate::run) struct RunMemory {
    client: Client,
    run: RunId,
}

impl RunMemory {
    pub(in crate::run) const fn of(client: Client, run: RunId) -> Self {
        Self { client, run }
    }
}

impl Memory for RunMemory {
    fn act(&self, request: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>> {
        Box::pin(async move {
            let asked = patiently(Instant::now() + PATIENCE, || self.client.run_memory(self.run, &request));
            asked.await.map_err(|error| match error {
                // In the coordinator's own words: they name what is wrong and its remedy.
                ClientError::Refused(problem) => problem.detail,
                other => format!("memory cannot be reached: {}", causes::told(&other)),
            })
        })
    }
}
