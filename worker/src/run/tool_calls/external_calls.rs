//! Tool calls that leave the sandbox: commands with a network grant and MCP tools. The tool executor calls this, and
//! runs all others itself.

use std::{collections::BTreeMap, sync::Arc};

use docket_schema::{content::WorkspacePath, ids::BlobHash, message::ToolUse, policy::AllowList};

use super::{malformed::malformed_call_message, tool_executor::ToolExecutor};
use crate::run::environment::network_grants::{NetworkRunner, format_network_use};
use crate::{
    mcp,
    tools::{self, ToolContext, ToolOutcome},
};

impl ToolExecutor {
    /// Runs a call with a network grant. Its network activity is appended to its result.
    pub(in crate::run) async fn execute_with_network(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkspacePath, BlobHash>,
        allow: Arc<AllowList>,
    ) -> ToolOutcome {
        let runner = NetworkRunner::new(&self.runner, allow);
        let context = self.tool_context(read_set, self.test_runner.as_ref());
        let context = ToolContext { runner: &runner, call: Some(&tool.call), ..context };
        let mut outcome = tools::execute_tool(context, &tool.name, &tool.args).await;
        if let Some(seen) = runner.into_network_seen() {
            outcome.content.extend_from_slice(format_network_use(&seen).as_bytes());
            outcome.facts.network = Some(seen);
        }
        outcome
    }

    /// Calls a server's tool. Its network activity is appended to its result.
    pub(in crate::run) async fn call_mcp_tool(
        &self,
        tool: &ToolUse,
        network: Option<Arc<AllowList>>,
    ) -> ToolOutcome {
        if let Some(text) = &tool.malformed {
            return ToolOutcome::error(&tool.name, malformed_call_message(&tool.name, text));
        }
        let Some(external) = self.external_tools.iter().find(|external| external.name == tool.name) else {
            return ToolOutcome::error(&tool.name, format!("`{}` is no tool of this run", tool.name));
        };
        let asked = mcp::McpToolCall { tool: external, args: &tool.args, network };
        let mut outcome = mcp::call_tool(&self.runner.0, &self.mcp_servers, &self.settings, asked).await;
        if let Some(seen) = &outcome.facts.network {
            outcome.content.extend_from_slice(format_network_use(seen).as_bytes());
        }
        outcome
    }
}
