//! What a supervisor hands a run process: everything it needs, through a pipe that nobody else can
//! read. Nothing of it stands in the process's arguments or environment.

use std::{collections::BTreeMap, path::PathBuf};

use docket_sandbox::{CheckedHost, Limits, SecretEnv};
use docket_schema::{api::Lease, ids::IncarnationId, policy::Policy, run::RunSettings};
use serde::{Deserialize, Serialize};

use crate::mcp::McpServer;

/// Exit status of a run process that ended its turn because its supervisor drains: the lease is
/// to be released. Follows sysexits' EX_TEMPFAIL.
pub const EXIT_DRAINED: i32 = 75;

/// Exit status of a run process whose lease is no more: nothing is to be released.
pub const EXIT_LEASE_LOST: i32 = 76;

/// Exit status of a run process that met a fault of its worker and reported it: the lease is to be released, and the
/// task is not to blame. Follows sysexits' EX_NOPERM.
pub const EXIT_WORKER_FAULT: i32 = 77;

/// Which sandbox a worker uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxChoice {
    /// Our own namespaces, else bubblewrap where installed.
    #[default]
    Auto,
    /// bubblewrap or nothing.
    Bubblewrap,
    /// Our own namespaces.
    Namespaces,
    /// No walls; only when a person says so.
    None,
}

/// A worker's settings as they reach a run process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// Defaults of a run; a task's patch goes over them.
    pub run: RunSettings,
    /// The sandbox.
    pub sandbox: SandboxChoice,
    /// What commands of a run may use together; what this host's size suggests where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Extra price table, as TOML text.
    pub prices_toml: Option<String>,
    /// What is struck out of prompts and results wherever it stands.
    #[serde(default)]
    pub redact: HiddenValues,
    /// Model servers that get this worker's keys, beside the providers' own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_urls: Vec<String>,
    /// What models may do here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// MCP servers whose tools runs have here, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpServer>,
    /// What these servers take of the worker's environment.
    #[serde(default)]
    pub mcp_env: SecretEnv,
}

/// Values that nobody prints. They reach a run process through its pipe, and stay there.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HiddenValues(pub Vec<String>);

impl std::fmt::Debug for HiddenValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} hidden values", self.0.len())
    }
}

/// See the module.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunBootstrap {
    /// The coordinator, as `http://host:port`.
    pub coordinator: String,
    /// The one CA to trust where that is https, as PEM; none = the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The lease, with its token.
    pub lease: Lease,
    /// The worker's incarnation.
    pub incarnation: IncarnationId,
    /// Keys by provider (`anthropic`, `openai`). They stay in this process.
    pub keys: BTreeMap<String, String>,
    /// Folder for this run's workspace; made new, removed by the supervisor afterwards.
    pub scratch: PathBuf,
    /// Where this process notes what it is at; without, nobody watches it.
    #[serde(default)]
    pub progress: Option<PathBuf>,
    /// Where this process reports a fault of its worker, over the bytes that are there.
    #[serde(default)]
    pub fault: Option<PathBuf>,
    /// Folder for base objects, shared by the runs of a worker.
    pub cache: PathBuf,
    /// Settings.
    pub settings: WorkerSettings,
    /// The host's walls as the supervisor checked them; without, they are checked again.
    #[serde(default)]
    pub walls: Option<CheckedHost>,
    /// Tests only: where to stop dead.
    #[serde(default)]
    pub failpoints: Vec<Failpoint>,
}

/// Sends a signal at a named place of the log. Tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failpoint {
    /// The event at which to die.
    pub seq: u64,
    /// On which side of the append that holds it.
    pub when: FailpointTiming,
    /// Only under this epoch, so that the successor lives.
    pub epoch: u64,
    /// Who dies.
    pub whom: FailpointTarget,
}

/// When to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailpointTiming {
    /// Before the append that holds the event.
    Before,
    /// After that append was acknowledged.
    After,
}

/// Who dies at a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailpointTarget {
    /// The run process.
    Run,
    /// Its supervisor, and the run process with it.
    Supervisor,
    /// The run process stops with SIGSTOP.
    Sleeper,
    /// Another process, by its id: the coordinator of a test. The run process lives on.
    Process(i32),
}
