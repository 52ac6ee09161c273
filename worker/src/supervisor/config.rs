//! Configuration of a supervisor.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use docket_sandbox::TOOL_HOME_VARIABLES;
use docket_schema::{
    ids::{IncarnationId, QueueName},
    run::EngineRef,
    task::LabelSet,
};

use crate::{
    bootstrap::{Failpoint, WorkerSettings},
    secret::Secret,
};

/// The program that executes a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunProgram {
    /// Absolute path.
    pub path: PathBuf,
    /// Its arguments. They contain nothing about the run, which arrives on stdin.
    pub args: Vec<OsString>,
    /// Environment variables that are passed on if they are set.
    pub inherited_variables: Vec<OsString>,
}

/// Variables that a run process inherits from its supervisor in addition to [`TOOL_HOME_VARIABLES`]: the locations of
/// programs and of the home folder, logging, and access to the model. Commands in the sandbox get none of them.
const INHERITED_VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "NO_PROXY",
    "no_proxy",
];

impl Default for RunProgram {
    /// This binary's own `run-process`.
    fn default() -> Self {
        Self {
            path: PathBuf::from("/proc/self/exe"),
            args: vec!["run-process".into()],
            inherited_variables: INHERITED_VARIABLES
                .into_iter()
                .chain(TOOL_HOME_VARIABLES)
                .map(OsString::from)
                .collect(),
        }
    }
}

/// Configuration of a supervisor.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// The coordinator, such as `http://host:port`.
    pub coordinator: String,
    /// The only CA to trust for https, as PEM; `None` = the system's.
    pub ca: Option<String>,
    /// A token of the role `worker`.
    pub token: Secret,
    /// The worker's name, for people. At most 200 bytes.
    pub name: String,
    /// Concurrent runs at most; clamped to 1 through [`docket_schema::api::LEASE_MAX`].
    pub slots: u32,
    /// Queues it serves; empty = all.
    pub queues: Vec<QueueName>,
    /// Its labels: a task may require them of its worker.
    pub labels: LabelSet,
    /// Engines its run program has.
    pub engines: Vec<EngineRef>,
    /// Keys by provider, for the run processes.
    pub keys: BTreeMap<String, Secret>,
    /// This start of the worker: [`crate::clock::new_incarnation`].
    pub incarnation: IncarnationId,
    /// Folder for the workspaces of runs; may be shared by workers. Absolute.
    pub scratch: PathBuf,
    /// Folder for base objects. Absolute.
    pub cache: PathBuf,
    /// Settings of runs.
    pub settings: WorkerSettings,
    /// How long a drain lets runs finish their turn.
    pub grace: Duration,
    /// How long a run process may make no progress before it counts as hanging, whatever its current step; `None` =
    /// the time limit of that step.
    pub hang_after: Option<Duration>,
    /// The program that executes a run.
    pub program: RunProgram,
    /// Tests only: passed on to run processes.
    pub failpoints: Vec<Failpoint>,
}

impl SupervisorConfig {
    /// Returns the engines of this build.
    pub fn engines_of_this_build() -> Vec<EngineRef> {
        crate::engine::all_engines().iter().map(|engine| engine.engine_ref()).collect()
    }
}
