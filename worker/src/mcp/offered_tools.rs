//! Lists the tools of MCP servers in the form that a run pins.

use std::time::Duration;

use docket_sandbox::{Sandbox, SecretEnv};
use docket_schema::{
    message::ToolSpec,
    run::{ExternalTool, UnavailableServer},
};
use rmcp::{ServiceError, model::Tool};
use serde_json::Value;

use super::{McpServer, McpServers, McpSessionError, session};

/// Most tools offered per server: more would drown out the run's own.
const TOOLS_MAX: usize = 64;
/// Longest description, in characters: the server controls it, and it is part of every request.
const DESCRIPTION_CHARS_MAX: usize = 2000;
/// Largest schema, in bytes, for the same reason.
const SCHEMA_BYTES_MAX: usize = 16 * 1024;
/// Longest tool name that providers accept, in bytes.
const TOOL_NAME_BYTES_MAX: usize = 64;

/// A tool as the model sees it and as the run records it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedMcpTool {
    pub(crate) spec: ToolSpec,
    pub(crate) tool: ExternalTool,
}

/// The tools that a worker's servers offer, and the servers that are unavailable.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OfferedMcpTools {
    pub(crate) tools: Vec<ListedMcpTool>,
    pub(crate) unavailable_servers: Vec<UnavailableServer>,
}

/// Asks every server for its tools, ordered by server name. A tool that cannot be offered is skipped and named in the
/// worker's own log; so is an optional server that does not answer.
///
/// # Errors
/// Names the required server that does not answer, with the reason: a run without its required tools would only waste
/// turns.
pub(crate) async fn list_tools(
    sandbox: &Sandbox,
    servers: &McpServers,
) -> Result<OfferedMcpTools, (String, McpSessionError)> {
    let mut all = OfferedMcpTools::default();
    for (name, server) in &servers.by_name {
        let time = Duration::from_millis(server.timeout_ms);
        let ask = |peer: rmcp::Peer<rmcp::RoleClient>| async move {
            peer.list_all_tools().await.map_err(describe_list_error)
        };
        let held =
            Box::pin(session::run_session(sandbox, (server, &servers.inherited_env), (time, None), ask))
                .await;
        let mut tools = match held.reply {
            Ok(tools) => tools,
            Err(error) if server.required => return Err((name.clone(), error)),
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(server = %name, why, "a server does not work; the run goes without its tools");
                all.unavailable_servers.push(UnavailableServer { server: name.clone(), why });
                continue;
            }
        };
        // Sorted here, because the same tools must give the same prompt.
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let listed_twice = |tool: &mut Tool, before: &mut Tool| {
            let same = tool.name == before.name;
            if same {
                let tool = &*tool.name;
                tracing::warn!(server = %name, tool, "a tool is listed twice: the first is offered");
            }
            same
        };
        tools.dedup_by(listed_twice);
        let offered = tools.into_iter().filter(|tool| server.offers_tool(&tool.name));
        for tool in offered.take(TOOLS_MAX) {
            match convert_tool(name, tool) {
                Ok(listed) => all.tools.push(listed),
                Err((tool, why)) => tracing::warn!(server = %name, %tool, why, "a tool is not offered"),
            }
        }
    }
    Ok(all)
}

/// Starts one server as a run would and returns the number of tools it offers.
///
/// # Errors
/// The server does not start or does not answer within `time`.
pub async fn probe_server(
    sandbox: &Sandbox,
    server: &McpServer,
    given: &SecretEnv,
    time: Duration,
) -> Result<usize, McpSessionError> {
    let ask = |peer: rmcp::Peer<rmcp::RoleClient>| async move {
        peer.list_all_tools().await.map_err(describe_list_error)
    };
    let held = Box::pin(session::run_session(sandbox, (server, given), (time, None), ask)).await;
    Ok(held.reply?.iter().filter(|tool| server.offers_tool(&tool.name)).take(TOOLS_MAX).count())
}

fn describe_list_error(error: ServiceError) -> String {
    format!("it does not list its tools: {}", session::describe_request_error(&error))
}

/// Converts a server's tool to its form in a run; the error says why it cannot be offered.
pub(super) fn convert_tool(server: &str, tool: Tool) -> Result<ListedMcpTool, (String, &'static str)> {
    let own = tool.name.into_owned();
    let name = format!("mcp__{server}__{own}");
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.len() > TOOL_NAME_BYTES_MAX || !name.chars().all(of_name) {
        return Err((own, "models cannot call it by its name"));
    }
    let input_schema = Value::Object(tool.input_schema.as_ref().clone());
    if input_schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err((own, "its schema is too long"));
    }
    let description = tool.description.unwrap_or_default();
    let description: String = description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let hints = tool.annotations.unwrap_or_default();
    let read_only = hints.read_only_hint == Some(true);
    let idempotent = hints.idempotent_hint == Some(true);
    let tool =
        ExternalTool { name: name.clone(), server: server.to_owned(), tool: own, read_only, idempotent };
    Ok(ListedMcpTool { spec: ToolSpec { name, description, input_schema }, tool })
}
