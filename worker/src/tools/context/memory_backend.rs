//! Memory beyond the run, as the tools see it.

use docket_schema::api::{RunMemoryRequest, RunMemoryResponse};
use futures_util::future::BoxFuture;

/// Memory that outlives the run.
pub trait MemoryBackend: Send + Sync {
    /// Does what a call asks; why it cannot, in words for the model. The same call asked again is done once.
    fn execute(&self, request: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>>;
}

/// Where there is none: whoever runs a tool outside of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl MemoryBackend for NoMemory {
    fn execute(&self, _: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>> {
        Box::pin(async { Err("there is no memory here: it belongs to runs".to_owned()) })
    }
}
