//! The `[mcp.NAME]` sections of a worker's settings.

use std::collections::BTreeMap;

use docket_sandbox::{SecretEnv, WORKSPACE_INSIDE};
use serde::{Deserialize, Serialize};

use crate::policy::matches_wildcard;

/// Longest server name, in bytes. It is part of its tools' names, which providers limit to 64 characters.
const SERVER_NAME_BYTES_MAX: usize = 24;
/// Most servers of one worker: each is started when a run begins.
const SERVERS_MAX: usize = 16;

/// Most environment variables of one server.
const VARIABLES_MAX: usize = 64;

/// How a server is started and which of its tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Program and arguments; it speaks MCP over stdin and stdout.
    pub command: Vec<String>,
    /// Names of the offered tools, with `*` for any characters; empty offers all of them.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Whether this worker takes tasks only while the server works. If `false`, a run that begins while the server is
    /// down has none of its tools.
    #[serde(default = "is_required")]
    pub required: bool,
    /// Time limit of a call in milliseconds, including the server's start.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Environment variables by name. They are written in a settings file, so none of them is a secret.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub env: SecretEnv,
    /// Names of variables passed on from the worker's environment. Their values are secrets: only the server's
    /// process gets them, and they are redacted from everything that is recorded.
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
    /// Whether the command names files of a workspace, so that it cannot start without one.
    #[must_use]
    pub fn needs_workspace(&self) -> bool {
        self.command.iter().any(|word| names_workspace_file(word) || word.contains("DOCKET_WORKSPACE"))
    }

    pub(super) fn offers_tool(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|pattern| matches_wildcard(pattern, tool))
    }

    /// Returns the process's environment; `given` are the worker's variables that servers name.
    ///
    /// # Errors
    /// Returns the name of a variable that the worker lacks.
    pub(super) fn resolve_env(&self, given: &SecretEnv) -> Result<SecretEnv, String> {
        let mut all = self.env.clone();
        for name in &self.env_from {
            let value = given.0.get(name).ok_or_else(|| name.clone())?;
            all.0.insert(name.clone(), value.clone());
        }
        Ok(all)
    }

    /// The command line to start. A server that gets secrets of the worker starts outside the workspace, where a
    /// model could plant files that its language or package manager loads first; `DOCKET_WORKSPACE` holds the
    /// workspace's path.
    pub(super) fn argv(&self) -> Vec<&str> {
        const OUTSIDE: &str = "DOCKET_WORKSPACE=$PWD; export DOCKET_WORKSPACE; cd / && exec \"$@\"";
        let begin: &[&str] = if self.env_from.is_empty() { &[] } else { &["/bin/sh", "-c", OUTSIDE, "sh"] };
        begin.iter().copied().chain(self.command.iter().map(String::as_str)).collect()
    }

    /// A hint to append to the error when the server did not start.
    pub(super) const fn start_hint(&self) -> &'static str {
        if self.env_from.is_empty() { "" } else { OUTSIDE_WORKSPACE_HINT }
    }

    /// Checks the variables and describes the first problem.
    fn check_env(&self) -> Result<(), String> {
        if !self.env_from.is_empty()
            && let Some(program) =
                self.command.first().filter(|name| name.contains('/') && !name.starts_with('/'))
        {
            return Err(format!(
                "the program `{program}` is in the workspace, where a model could change it, and `env_from` would give it \
                 secrets: use an absolute path"
            ));
        }
        let all: Vec<&String> = self.env.0.keys().chain(&self.env_from).collect();
        if all.len() > VARIABLES_MAX {
            return Err(format!("it has {} variables; at most {VARIABLES_MAX} are allowed", all.len()));
        }
        for (nth, name) in all.iter().enumerate() {
            let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(of_name)
            {
                return Err(format!("`{name}` is not a valid variable name"));
            }
            if all[..nth].contains(name) {
                return Err(format!("the variable `{name}` is listed twice in `env` and `env_from`"));
            }
        }
        match self.env.0.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(format!("the value of `{name}` contains a NUL byte")),
            None => Ok(()),
        }
    }
}

/// Collects the worker's variables that servers inherit, if set; `has` looks them up in its environment.
pub fn inherited_env(
    servers: &BTreeMap<String, McpServer>,
    has: impl Fn(&str) -> Option<String>,
) -> SecretEnv {
    let names = servers.values().flat_map(|server| &server.env_from);
    SecretEnv(names.filter_map(|name| Some((name.clone(), has(name)?))).collect())
}

/// Parses the section `[mcp]`.
///
/// # Errors
/// Describes the first problem, with the server's name.
pub fn parse_servers(section: toml::Table) -> Result<BTreeMap<String, McpServer>, String> {
    if section.len() > SERVERS_MAX {
        return Err(format!("there are {} servers; at most {SERVERS_MAX} are allowed", section.len()));
    }
    let one = |(name, value): (String, toml::Value)| {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > SERVER_NAME_BYTES_MAX || !name.chars().all(of_name) {
            let allowed = format!("1 to {SERVER_NAME_BYTES_MAX} of the characters a-z, 0-9 and -");
            return Err(format!("`{name}`: a server name must be {allowed}"));
        }
        let server: McpServer = value.try_into().map_err(|error| format!("`{name}`: {error}"))?;
        if server.command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(format!("`{name}`: `command` is empty; write it as [\"PROGRAM\", \"ARGUMENT\", …]"));
        }
        server.check_env().map_err(|why| format!("`{name}`: {why}"))?;
        if !(100..=3_600_000).contains(&server.timeout_ms) {
            return Err(format!("`{name}`: `timeout_ms` must be from 100 to 3600000"));
        }
        Ok((name, server))
    };
    section.into_iter().map(one).collect()
}
