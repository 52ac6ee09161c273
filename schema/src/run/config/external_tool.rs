//! Tools of external MCP servers, as pinned at the start of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tool offered by one of the worker's MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalTool {
    /// The tool's name in the run: `mcp__SERVER__TOOL`.
    pub name: String,
    /// The server's name in the worker's settings.
    pub server: String,
    /// The tool's name on the server.
    pub tool: String,
    /// The server declares that the tool changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The server declares that repeating a call has no further effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

/// An MCP server whose tools are not available to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnavailableServer {
    /// The server's name in the worker's settings.
    pub server: String,
    /// Why it did not respond.
    pub why: String,
}
