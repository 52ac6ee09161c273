//! Where memory is, as the tools see it, and what they share.

use docket_schema::{
    message::CallId,
    wire::{MemoryAct, RunMemoryRequest, RunMemoryResponse, ScopeName},
};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::context::{ToolContext, ToolOutcome};

/// Memory that outlives the run.
pub trait Memory: Send + Sync {
    /// Does what a call asks; why it cannot, in words for the model. The same call asked again is done once.
    fn act(&self, request: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>>;
}

/// Where there is none: whoever runs a tool outside of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl Memory for NoMemory {
    fn act(&self, _: RunMemoryRequest) -> BoxFuture<'_, Result<RunMemoryResponse, String>> {
        Box::pin(async { Err("there is no memory here: it belongs to runs".to_owned()) })
    }
}

/// Whose memory a call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scope {
    #[default]
    Repository,
    Queue,
}

impl From<Scope> for ScopeName {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Repository => Self::Repository,
            Scope::Queue => Self::Queue,
        }
    }
}

/// Asks, and makes an answer of what comes.
pub(super) async fn ask(
    context: ToolContext<'_>,
    tool: &str,
    scope: Option<Scope>,
    act: MemoryAct,
    told: impl FnOnce(RunMemoryResponse) -> Result<String, String>,
) -> ToolOutcome {
    // A call outside of a run has none, and none to be told from.
    let call = context.call.cloned().unwrap_or_else(|| CallId(String::new()));
    let request = RunMemoryRequest { call, scope: scope.unwrap_or_default().into(), act };
    match context.memory.act(request).await.and_then(told) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(tool, text),
    }
}

/// What is said of an answer to another question: a coordinator of another version.
pub(super) fn unexpected(_: RunMemoryResponse) -> Result<String, String> {
    Err("the coordinator answered something else than was asked; is it of the same version?".to_owned())
}
