//! Configuration that a supervisor passes to a run process. It travels through a pipe that no other process
//! can read, so keys and tokens never appear in the process's arguments or environment.

use std::{collections::BTreeMap, path::PathBuf};

use docket_sandbox::{CheckedHost, Limits, SecretEnv};
use docket_schema::{api::Lease, ids::IncarnationId, policy::Policy, run::RunSettings};
use serde::{Deserialize, Serialize};

use crate::mcp::McpServer;

/// Exit status of a run process that finished its turn because its supervisor is draining. The supervisor
/// releases the lease. Follows sysexits' EX_TEMPFAIL.
pub const EXIT_DRAINED: i32 = 75;

/// Exit status of a run process that lost its lease. There is nothing to release.
pub const EXIT_LEASE_LOST: i32 = 76;

/// Exit status of a run process that hit a fault of its worker and reported it. The supervisor releases the
/// lease, and the failure does not count against the task. Follows sysexits' EX_NOPERM.
pub const EXIT_WORKER_FAULT: i32 = 77;

/// Which sandbox a worker uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxChoice {
    /// docket's own namespaces, or bubblewrap if they are unavailable and it is installed.
    #[default]
    Auto,
    /// bubblewrap only.
    Bubblewrap,
    /// docket's own namespaces only.
    Namespaces,
    /// No sandbox; only on explicit request.
    None,
}

/// A worker's settings as passed to a run process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// Run defaults; a task's settings override them.
    pub run: RunSettings,
    pub sandbox: SandboxChoice,
    /// Combined resource limits of a run's commands; derived from the size of the host if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Additional price table, as TOML text.
    pub prices_toml: Option<String>,
    /// Values to redact from prompts and results.
    #[serde(default)]
    pub redact: HiddenValues,
    /// Model servers that may receive this worker's keys, in addition to the providers' own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_urls: Vec<String>,
    /// The worker's policy for model actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// MCP servers available to runs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpServer>,
    /// The part of the worker's environment that MCP servers receive.
    #[serde(default)]
    pub mcp_env: SecretEnv,
}

/// Values that must not be printed. They reach a run process through its pipe and stay there.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HiddenValues(pub Vec<String>);

impl std::fmt::Debug for HiddenValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} hidden values", self.0.len())
    }
}

/// The message sent through the pipe; see the module documentation.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunBootstrap {
    /// The coordinator's URL, `http://host:port`.
    pub coordinator: String,
    /// The only CA to trust for an https coordinator, as PEM; `None` = the system's CAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The lease, with its token.
    pub lease: Lease,
    pub incarnation: IncarnationId,
    /// API keys by provider (`anthropic`, `openai`). They never leave this process.
    pub keys: BTreeMap<String, String>,
    /// Folder for this run's workspace; created by the process, removed by the supervisor afterwards.
    pub scratch: PathBuf,
    /// File to which this process reports its progress; without it the process is not watched for stalls.
    #[serde(default)]
    pub progress: Option<PathBuf>,
    /// File to which this process reports a fault of its worker, overwriting its contents.
    #[serde(default)]
    pub fault: Option<PathBuf>,
    /// Cache folder for base objects, shared by all runs of a worker.
    pub cache: PathBuf,
    pub settings: WorkerSettings,
    /// The supervisor's result of checking the host's sandbox support; if missing, the host is checked again.
    #[serde(default)]
    pub walls: Option<CheckedHost>,
    /// Tests only: points at which to send a signal.
    #[serde(default)]
    pub failpoints: Vec<Failpoint>,
}

/// Sends a signal at a given position of the log. Tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failpoint {
    /// The event that triggers the signal.
    pub seq: u64,
    /// Whether to trigger before or after the append that contains the event.
    pub when: FailpointTiming,
    /// The only epoch in which the failpoint is active, so that the successor survives.
    pub epoch: u64,
    /// The process to signal.
    pub whom: FailpointTarget,
}

/// When a failpoint triggers, relative to the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailpointTiming {
    /// Before the append that contains the event.
    Before,
    /// After that append was acknowledged.
    After,
}

/// The process that a failpoint signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailpointTarget {
    /// The run process.
    Run,
    /// Its supervisor, together with the run process.
    Supervisor,
    /// The run process, stopped with SIGSTOP.
    Sleeper,
    /// Another process by its id, such as a test's coordinator. The run process survives.
    Process(i32),
}
