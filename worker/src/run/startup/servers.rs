//! The MCP servers of a worker's settings, as a run that begins asks them.

use docket_schema::{
    redact::Redactor,
    wire::{FaultKind, FaultScope},
};

use crate::run::{
    environment::sandbox_runner::SandboxRunner,
    errors::{faults, start_error::StartError},
};
use crate::{
    bootstrap::Bootstrap,
    mcp::{self, Listed, Offered},
};

/// What the worker's servers offer. One that does not answer is a fault of this worker, unless it is not required. What a server says of
/// its tools stands in every prompt, and what it says when it fails in an event: the secrets that it was given do not.
pub(in crate::run) async fn offered(
    bootstrap: &Bootstrap,
    (runner, redactor): (&SandboxRunner, &Redactor),
) -> Result<Offered, StartError> {
    let servers = servers(bootstrap);
    let mut offered = mcp::list(&runner.0, &servers).await.map_err(|(server, error)| {
        let said = format!("the MCP server `{server}` of this worker's settings does not work: {error}");
        let task = bootstrap.lease.task;
        let scope = servers
            .all
            .get(&server)
            .map_or(FaultScope::Task(task), |server| faults::scope_of_server(server, &error, task));
        StartError::worker(FaultKind::McpServer, scope, &redactor.text(&said))
    })?;
    for left_out in &mut offered.left_out {
        left_out.why = redactor.text(&left_out.why).into_owned();
    }
    for Listed { spec, .. } in &mut offered.listed {
        spec.description = redactor.text(&spec.description).into_owned();
        redactor.values_of(&mut spec.input_schema);
    }
    Ok(offered)
}

/// The servers of this worker's settings.
pub(in crate::run) fn servers(bootstrap: &Bootstrap) -> mcp::Servers {
    mcp::Servers { all: bootstrap.settings.mcp.clone(), given: bootstrap.settings.mcp_env.clone() }
}
