//! Memory beyond the run, as seen by the tools.

use docket_schema::api::{RunMemoryRequest, RunMemoryResponse};
use futures_util::future::BoxFuture;

/// Memory that outlives the run.
pub trait MemoryBackend: Send + Sync {
    /// Executes a request; the error is a text for the model. A repeated call takes effect once.
    fn execute(&self, request: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>>;
}

/// A backend without memory, for tools that run outside of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl MemoryBackend for NoMemory {
    fn execute(&self, _: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>> {
        Box::pin(async { Err("there is no memory here: it belongs to runs".to_owned()) })
    }
}
