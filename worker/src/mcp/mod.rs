//! Tools of MCP servers (Model Context Protocol): programs of the worker's configuration that a run's model may call.
//!
//! A server is started for each call, inside the run's own sandbox, and has ended when the call has: whatever a process
//! keeps in mind between two calls would be in no log, and gone after a crash. So a server's tools are as durable,
//! as bounded and as confined as a command. What it offers is asked once, when a run begins, and pinned.
//!
//! Used by the driver: `start` lists, the workbench calls. The protocol itself is `rmcp`'s.

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
