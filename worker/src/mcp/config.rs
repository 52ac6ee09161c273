//! The `[mcp.NAME]` sections of a worker's settings.

use std::collections::BTreeMap;

use docket_sandbox::{SecretEnv, WORKSPACE_INSIDE};
use serde::{Deserialize, Serialize};

use crate::policy::matches_wildcard;

/// Longest name of a server: it stands in the names of its tools, of which providers take 64 characters.
const SERVER_NAME_BYTES_MAX: usize = 24;
/// Servers of one worker: each is started when a run begins.
const SERVERS_MAX: usize = 16;

/// Variables of one server: what it needs to know of where it is.
const VARIABLES_MAX: usize = 64;

/// How a server is started, and which of its tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Program and arguments; it speaks MCP over its standard input and output.
    pub command: Vec<String>,
    /// Tools that are offered, by name, with `*` for any characters; all of them where none is named.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Whether this worker takes tasks only while the server works. Otherwise a run that begins while the server does not
    /// work has none of its tools.
    #[serde(default = "is_required")]
    pub required: bool,
    /// How long a call may take, the server's start included, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Variables of its environment, by name. They stand in a file of settings: none of them is a secret.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub env: SecretEnv,
    /// Names of variables that it has as the worker has them. Their values are secrets: they reach the server's process and
    /// nothing else, and are struck out of all that is written down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
}

fn is_empty(env: &SecretEnv) -> bool {
    env.0.is_empty()
}

const fn is_required() -> bool {
    true
}

const fn timeout_ms() -> u64 {
    60_000
}

/// See [`McpServer::argv`].
const OUTSIDE_WORKSPACE_HINT: &str = " (it is given secrets, so it is started in `/`: name its files by whole paths, or from \
                            `DOCKET_WORKSPACE`)";

/// Whether a word of a command names a file of the workspace.
pub(crate) fn names_workspace_file(word: &str) -> bool {
    let is_relative = word.contains('/') && !word.starts_with('/') && !word.contains("://");
    is_relative || word.contains(WORKSPACE_INSIDE)
}

impl McpServer {
    /// Whether its command names files of a workspace, so that it cannot start without one.
    #[must_use]
    pub fn needs_workspace(&self) -> bool {
        self.command.iter().any(|word| names_workspace_file(word) || word.contains("DOCKET_WORKSPACE"))
    }

    /// Whether a tool of this name is offered.
    pub(super) fn offers_tool(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| matches_wildcard(pattern, tool))
    }

    /// The variables of its process; `given` are the worker's, of those that servers name.
    ///
    /// # Errors
    /// The name of one that the worker has not.
    pub(super) fn resolve_env(&self, given: &SecretEnv) -> Result<SecretEnv, String> {
        let mut all = self.env.clone();
        for name in &self.env_from {
            let value = given.0.get(name).ok_or_else(|| name.clone())?;
            all.0.insert(name.clone(), value.clone());
        }
        Ok(all)
    }

    /// What is started. One that is given secrets of the worker begins outside of the workspace, where a model could put what
    /// its language or its package manager takes before its own; `DOCKET_WORKSPACE` says where that is.
    pub(super) fn argv(&self) -> Vec<&str> {
        const OUTSIDE: &str = "DOCKET_WORKSPACE=$PWD; export DOCKET_WORKSPACE; cd / && exec \"$@\"";
        let begin: &[&str] = if self.env_from.is_empty() { &[] } else { &["/bin/sh", "-c", OUTSIDE, "sh"] };
        begin.iter().copied().chain(self.command.iter().map(String::as_str)).collect()
    }

    /// What whoever reads why it did not start should know.
    pub(super) const fn start_hint(&self) -> &'static str {
        if self.env_from.is_empty() { "" } else { OUTSIDE_WORKSPACE_HINT }
    }

    /// What is wrong with its variables.
    fn check_env(&self) -> Result<(), String> {
        if !self.env_from.is_empty()
            && let Some(program) =
                self.command.first().filter(|name| name.contains('/') && !name.starts_with('/'))
        {
            return Err(format!(
                "the program `{program}` lies in the workspace, where a model could change it, and `env_from` would give it \
                 secrets: name it by its whole path"
            ));
        }
        let all: Vec<&String> = self.env.0.keys().chain(&self.env_from).collect();
        if all.len() > VARIABLES_MAX {
            return Err(format!("it has {} variables, and at most {VARIABLES_MAX} are allowed", all.len()));
        }
        for (nth, name) in all.iter().enumerate() {
            let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(of_name)
            {
                return Err(format!("`{name}` is no name of a variable"));
            }
            if all[..nth].contains(name) {
                return Err(format!(
                    "the variable `{name}` is named twice, in `env` and `env_from` or in one of them"
                ));
            }
        }
        match self.env.0.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(format!("the value of `{name}` has a zero byte")),
            None => Ok(()),
        }
    }
}

/// The variables that servers take from the worker, as far as it has them; `has` is its environment.
pub fn inherited_env(
    servers: &BTreeMap<String, McpServer>,
    has: impl Fn(&str) -> Option<String>,
) -> SecretEnv {
    let names = servers.values().flat_map(|server| &server.env_from);
    SecretEnv(names.filter_map(|name| Some((name.clone(), has(name)?))).collect())
}

/// Reads the section `[mcp]`.
///
/// # Errors
/// What is wrong, with the server's name.
pub fn parse_servers(section: toml::Table) -> Result<BTreeMap<String, McpServer>, String> {
    if section.len() > SERVERS_MAX {
        return Err(format!("there are {} servers, and at most {SERVERS_MAX} are allowed", section.len()));
    }
    let one = |(name, value): (String, toml::Value)| {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > SERVER_NAME_BYTES_MAX || !name.chars().all(of_name) {
            let allowed = format!("1 to {SERVER_NAME_BYTES_MAX} of the characters a-z, 0-9 and -");
            return Err(format!("`{name}`: a server's name is {allowed}"));
        }
        let server: McpServer = value.try_into().map_err(|error| format!("`{name}`: {error}"))?;
        if server.command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(format!(
                "`{name}`: `command` names no program; write it as [\"PROGRAM\", \"ARGUMENT\", …]"
            ));
        }
        server.check_env().map_err(|why| format!("`{name}`: {why}"))?;
        if !(100..=3_600_000).contains(&server.timeout_ms) {
            return Err(format!("`{name}`: `timeout_ms` must be from 100 to 3600000"));
        }
        Ok((name, server))
    };
    section.into_iter().map(one).collect()
}
