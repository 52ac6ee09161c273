//! The `[mcp.NAME]` sections of a worker's settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::is_like;

/// Longest name of a server: it stands in the names of its tools, of which providers take 64 characters.
const NAME_BYTES_MAX: usize = 24;
/// Servers of one worker: each is started when a run begins.
const SERVERS_MAX: usize = 16;

/// How a server is started, and which of its tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Program and arguments; it speaks MCP over its standard input and output.
    pub command: Vec<String>,
    /// Tools that are offered, by name, with `*` for any characters; all of them where none is named.
    #[serde(default)]
    pub tools: Vec<String>,
    /// How long a call may take, the server's start included, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
}

const fn timeout_ms() -> u64 {
    60_000
}

impl McpServer {
    /// Whether a tool of this name is offered.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| is_like(pattern, tool))
    }
}

/// Reads the section `[mcp]`.
///
/// # Errors
/// What is wrong, with the server's name.
pub fn read(section: toml::Table) -> Result<BTreeMap<String, McpServer>, String> {
    if section.len() > SERVERS_MAX {
        return Err(format!("there are {} servers, and at most {SERVERS_MAX} are allowed", section.len()));
    }
    let one = |(name, value): (String, toml::Value)| {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(of_name) {
            let allowed = format!("1 to {NAME_BYTES_MAX} of the characters a-z, 0-9 and -");
            return Err(format!("`{name}`: a server's name is {allowed}"));
        }
        let server: McpServer = value.try_into().map_err(|error| format!("`{name}`: {error}"))?;
        if server.command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(format!(
                "`{name}`: `command` names no program; write it as [\"PROGRAM\", \"ARGUMENT\", …]"
            ));
        }
        if !(100..=3_600_000).contains(&server.timeout_ms) {
            return Err(format!("`{name}`: `timeout_ms` must be from 100 to 3600000"));
        }
        Ok((name, server))
    };
    section.into_iter().map(one).collect()
}
