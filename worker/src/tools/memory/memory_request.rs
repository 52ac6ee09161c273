//! Shared parts of the memory tools.

use docket_schema::{
    api::{MemoryOperation, MemoryScopeKind, RunMemoryRequest, RunMemoryResponse},
    message::CallId,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::context::tool_context::{ToolContext, ToolOutcome};

/// Whose memory a call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum MemoryScope {
    #[default]
    Repository,
    Queue,
}

impl From<MemoryScope> for MemoryScopeKind {
    fn from(scope: MemoryScope) -> Self {
        match scope {
            MemoryScope::Repository => Self::Repository,
            MemoryScope::Queue => Self::Queue,
        }
    }
}

/// Sends a request and turns the reply into an answer.
pub(super) async fn send_request(
    context: ToolContext<'_>,
    tool: &str,
    scope: Option<MemoryScope>,
    act: MemoryOperation,
    told: impl FnOnce(RunMemoryResponse) -> Result<String, String>,
) -> ToolOutcome {
    // A call outside of a run has no id, and needs none to be distinguished.
    let call = context.call.cloned().unwrap_or_else(|| CallId(String::new()));
    let request = RunMemoryRequest { call, scope: scope.unwrap_or_default().into(), act };
    match context.memory.execute(request).await.and_then(told) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(tool, text),
    }
}

/// Error for a reply of the wrong kind: the coordinator has another version.
pub(super) fn unexpected_response(_: RunMemoryResponse) -> Result<String, String> {
    Err("the coordinator answered something else than was asked; is it of the same version?".to_owned())
}
