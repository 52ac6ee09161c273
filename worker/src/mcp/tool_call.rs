//! Calls a server's tool and formats the answer for the model.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use docket_sandbox::Sandbox;
use docket_schema::{policy::AllowList, run::ExternalTool};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::{McpServers, session};
use crate::tools::{self, ToolOutcome, ToolSettings};

/// One call of an MCP tool.
pub(crate) struct McpToolCall<'a> {
    /// The tool as pinned by the run.
    pub(crate) tool: &'a ExternalTool,
    pub(crate) args: &'a Value,
    /// Hosts that the server may reach.
    pub(crate) network: Option<Arc<AllowList>>,
}

/// Calls a tool. A server that is missing, fails or takes too long becomes an answer to the model.
pub(crate) async fn call_tool(
    sandbox: &Sandbox,
    servers: &McpServers,
    settings: &ToolSettings,
    asked: McpToolCall<'_>,
) -> ToolOutcome {
    let McpToolCall { tool, args, network } = asked;
    let Some(server) = servers.by_name.get(&tool.server) else {
        let text = format!("this worker has no MCP server `{}`, which the run began with", tool.server);
        return ToolOutcome::error(&tool.name, text);
    };
    let mut params = CallToolRequestParams::new(tool.tool.clone());
    match args {
        Value::Object(args) => params.arguments = Some(args.clone()),
        Value::Null => {}
        _ => return ToolOutcome::error(&tool.name, "the arguments must be a JSON object"),
    }
    let limit = settings.time_limit(server.timeout_ms);
    let ask = |peer: rmcp::Peer<rmcp::RoleClient>| async move {
        peer.call_tool(params).await.map_err(|error| session::describe_request_error(&error))
    };
    let time = (Duration::from_millis(limit.ms), network);
    let held = Box::pin(session::run_session(sandbox, (server, &servers.inherited_env), time, ask)).await;
    let mut outcome = match held.reply {
        Ok(result) => to_tool_outcome(&tool.name, &result, settings),
        Err(error) => {
            let text = format!("the MCP server `{}` failed: {error}", tool.server);
            // The text may quote the server.
            ToolOutcome::error(&tool.name, settings.redactor.redact_text(&text).into_owned())
        }
    };
    outcome.content.extend_from_slice(tools::format_restored_paths(&held.restored_paths).as_bytes());
    outcome.facts.network = held.network;
    // Whatever its annotations claim: the server had write access to the workspace.
    outcome.facts.may_have_changed_tree = true;
    outcome
}

fn to_tool_outcome(name: &str, result: &CallToolResult, settings: &ToolSettings) -> ToolOutcome {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for block in &result.content {
        let _ = match block {
            ContentBlock::Text(block) => writeln!(text, "{}", block.text.trim_end_matches('\n')),
            ContentBlock::Image(block) => writeln!(text, "[an image of type {}, not shown]", block.mime_type),
            ContentBlock::Audio(block) => writeln!(text, "[a sound of type {}, not shown]", block.mime_type),
            ContentBlock::Resource(block) => match &block.resource {
                ResourceContents::TextResourceContents { uri, text: inside, .. } => {
                    writeln!(text, "{uri}:\n{inside}")
                }
                ResourceContents::BlobResourceContents { uri, .. } => {
                    writeln!(text, "[{uri}: bytes, not shown]")
                }
                _ => writeln!(text, "[something else, not shown]"),
            },
            ContentBlock::ResourceLink(link) => writeln!(text, "[{}]", link.uri),
            // Content types added by later protocol versions.
            _ => writeln!(text, "[something else, not shown]"),
        };
    }
    if text.is_empty()
        && let Some(structured) = &result.structured_content
    {
        text = structured.to_string();
    }
    let text = settings.redactor.redact_text(&tools::printable_text(text.as_bytes())).into_owned();
    let (shown, was_cut) = tools::cut_middle(&text, settings.output_chars_max);
    let full = was_cut.then(|| text.into_bytes());
    match result.is_error {
        Some(true) => ToolOutcome { full_output: full, ..ToolOutcome::error(name, shown) },
        Some(false) | None => {
            ToolOutcome { content: shown.into_bytes(), full_output: full, ..ToolOutcome::default() }
        }
    }
}
