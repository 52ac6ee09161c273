//! Tools of MCP servers (Model Context Protocol): programs in the worker's configuration that a run's model may call.
//!
//! A server is started for each call, inside the run's own sandbox, and ends with the call: state that a process
//! keeps between two calls would be in no log and lost after a crash. This makes its tools as durable, bounded and
//! confined as a command. The list of tools is requested once, when a run begins, and pinned.
//!
//! The run loop lists the tools at startup, the tool executor calls them. The protocol itself is implemented by
//! `rmcp`.

mod config;
mod offered_tools;
mod session;
#[cfg(test)]
mod tests;
mod tool_call;

pub(crate) use config::names_workspace_file;
pub use config::{McpServer, inherited_env, parse_servers};
pub use offered_tools::probe_server;
pub(crate) use offered_tools::{ListedMcpTool, OfferedMcpTools, list_tools};
pub(crate) use session::McpServers;
pub use session::McpSessionError;
pub(crate) use tool_call::{McpToolCall, call_tool};
