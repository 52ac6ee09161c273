//! `memory_delete`: deletes a key.

use docket_schema::api::{MemoryOperation, RunMemoryResponse};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    memory_request::{MemoryScope, send_request, unexpected_response},
};

pub(in super::super) const NAME: &str = "memory_delete";
pub(in super::super) const DESCRIPTION: &str = "Forgets what is remembered under a key.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct MemoryDeleteArgs {
    /// The key.
    key: String,
    /// Who shares it: runs on this repository (the default), or runs of this queue.
    #[serde(default)]
    scope: Option<MemoryScope>,
}

pub(in super::super) async fn run(context: ToolContext<'_>, args: MemoryDeleteArgs) -> ToolOutcome {
    let MemoryDeleteArgs { key, scope } = args;
    send_request(context, NAME, scope, MemoryOperation::Delete { key: key.clone() }, |answer| match answer {
        RunMemoryResponse::Deleted => Ok(format!("forgot `{key}`")),
        RunMemoryResponse::Absent => {
            Err(format!("nothing is remembered under `{key}`; memory_recall without a key lists what is"))
        }
        other => unexpected_response(other),
    })
    .await
}
