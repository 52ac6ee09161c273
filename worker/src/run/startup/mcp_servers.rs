//! Lists the tools of the worker's MCP servers when a run begins.

use docket_schema::{
    api::{FaultKind, FaultScope},
    redact::Redactor,
};

use crate::run::{
    environment::sandbox_runner::SandboxRunner,
    errors::{start_error::StartError, worker_faults},
};
use crate::{
    bootstrap::RunBootstrap,
    mcp::{self, ListedMcpTool, OfferedMcpTools},
};

/// Lists the tools of the worker's servers. A server that does not answer is a worker fault, unless it is optional. A
/// server's tool descriptions become part of every prompt and its error text part of an event, so the secrets it was
/// given are removed from both.
pub(in crate::run) async fn list_mcp_tools(
    bootstrap: &RunBootstrap,
    (runner, redactor): (&SandboxRunner, &Redactor),
) -> Result<OfferedMcpTools, StartError> {
    let servers = configured_servers(bootstrap);
    let mut offered = mcp::list_tools(&runner.0, &servers).await.map_err(|(server, error)| {
        let said = format!("the MCP server `{server}` in this worker's settings does not work: {error}");
        let task = bootstrap.lease.task;
        let scope = servers
            .by_name
            .get(&server)
            .map_or(FaultScope::Task(task), |server| worker_faults::mcp_fault_scope(server, &error, task));
        StartError::from_worker_fault(FaultKind::McpServer, scope, &redactor.redact_text(&said))
    })?;
    for left_out in &mut offered.unavailable_servers {
        left_out.why = redactor.redact_text(&left_out.why).into_owned();
    }
    for ListedMcpTool { spec, .. } in &mut offered.tools {
        spec.description = redactor.redact_text(&spec.description).into_owned();
        redactor.redact_json_values(&mut spec.input_schema);
    }
    Ok(offered)
}

/// Returns the servers of this worker's settings.
pub(in crate::run) fn configured_servers(bootstrap: &RunBootstrap) -> mcp::McpServers {
    mcp::McpServers {
        by_name: bootstrap.settings.mcp.clone(),
        inherited_env: bootstrap.settings.mcp_env.clone(),
    }
}
