//! What a supervisor is told at its start.

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

/// The program that carries out a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunProgram {
    /// Absolute path.
    pub path: PathBuf,
    /// Its arguments. They hold nothing of the run: that comes by stdin.
    pub args: Vec<OsString>,
    /// Variables that are handed on where they are set.
    pub inherited_variables: Vec<OsString>,
}

/// What a run process may know of its supervisor's environment, beside [`TOOL_HOMES`]: where programs and the home
/// are, how to log, and how to reach the model. Commands in the sandbox get none of it.
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

/// See the module.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// The coordinator, as `http://host:port`.
    pub coordinator: String,
    /// The one CA to trust where that is https, as PEM; none = the system's.
    pub ca: Option<String>,
    /// A token of the role `worker`.
    pub token: Secret,
    /// The worker's name, for people. At most 200 bytes.
    pub name: String,
    /// Most runs at once; held within 1 and [`docket_schema::wire::LEASE_MAX`].
    pub slots: u32,
    /// Queues it serves; empty = all.
    pub queues: Vec<QueueName>,
    /// What it says of itself: a task may want a worker that has these.
    pub labels: LabelSet,
    /// Engines its run program has.
    pub engines: Vec<EngineRef>,
    /// Keys by provider, for the run processes.
    pub keys: BTreeMap<String, Secret>,
    /// This start of the worker: [`crate::clock::new_incarnation`].
    pub incarnation: IncarnationId,
    /// Where runs have their workspaces; may be shared by workers. Absolute.
    pub scratch: PathBuf,
    /// Where base objects are kept. Absolute.
    pub cache: PathBuf,
    /// Settings of runs.
    pub settings: WorkerSettings,
    /// How long a drain lets runs end their turn.
    pub grace: Duration,
    /// A run process without progress for so long counts as hanging, whatever it is at; `None` = the longest
    /// that what it is at may take.
    pub hang_after: Option<Duration>,
    /// What carries out a run.
    pub program: RunProgram,
    /// Tests only: handed on to run processes.
    pub failpoints: Vec<Failpoint>,
}

impl SupervisorConfig {
    /// The engines of this build.
    pub fn engines_of_this_build() -> Vec<EngineRef> {
        crate::engine::all_engines().iter().map(|engine| engine.engine_ref()).collect()
    }
}
