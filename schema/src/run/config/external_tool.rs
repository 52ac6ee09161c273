//! Tools of servers outside docket, as a run pins them when it begins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tool that an MCP server of the worker's offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalTool {
    /// Its name in the run: `mcp__SERVER__TOOL`.
    pub name: String,
    /// The server's name in the worker's settings.
    pub server: String,
    /// Its name at the server.
    pub tool: String,
    /// The server says that it changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The server says that the same call again changes nothing more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

/// An MCP server whose tools a run has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnavailableServer {
    /// Its name in the worker's settings.
    pub server: String,
    /// Why it did not answer.
    pub why: String,
}
