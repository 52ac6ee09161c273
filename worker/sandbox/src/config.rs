//! Configuration, commands and results of the sandbox. Plain data; no behavior except constructors.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use docket_schema::{
    policy::AllowList,
    tool::{ExceededResource, NetworkActivity},
};
use serde::{Deserialize, Serialize};

use super::{
    capture::CapturedStream,
    limits::{self, Limits},
};

/// First argument of docket's own binary when it runs as the init of a sandbox.
pub const INIT_MARKER: &str = "__sandbox-init";

/// Path of the workspace inside the sandbox.
pub const WORKSPACE_INSIDE: &str = "/workspace";

/// Default number of bytes kept per stream: enough for a long test log, not for a core dump.
pub const KEEP_BYTES_DEFAULT: usize = 1024 * 1024;

/// The requested sandbox backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendChoice {
    /// Our own backend if its self-tests pass, else bubblewrap if it is installed.
    Auto,
    /// bubblewrap; fails if it is unavailable.
    Bubblewrap,
    /// Our own namespaces; fails if they are unavailable.
    Namespaces,
    /// No isolation. Commands run as docket's own user; the only guarantee is that every process ends
    /// with its call.
    None,
}

/// How to execute docket again as a sandbox's init.
#[derive(Clone, Debug)]
pub struct InitProgram {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments; the first is [`INIT_MARKER`].
    pub args: Vec<OsString>,
}

impl Default for InitProgram {
    /// Uses the running executable, even if an upgrade has replaced its file.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec![INIT_MARKER.into()] }
    }
}

/// Configuration of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// The backend.
    pub backend: BackendChoice,
    /// The only writable folder of the host; an absolute path.
    pub workspace: PathBuf,
    /// Additional folders and files readable inside under their own paths (such as the base's object
    /// cache). Missing ones are refused.
    pub readonly: Vec<PathBuf>,
    /// Variables added to the scrubbed environment.
    pub env: Vec<(String, String)>,
    /// Limits of all commands together. Not enforced without isolation.
    pub limits: Limits,
    /// The program that acts as init.
    pub init_program: InitProgram,
}

impl SandboxConfig {
    /// Returns the default configuration for one workspace.
    pub fn new(backend: BackendChoice, workspace: &Path) -> Self {
        Self {
            backend,
            workspace: workspace.to_owned(),
            readonly: Vec::new(),
            env: Vec::new(),
            limits: limits::default_limits(),
            init_program: InitProgram::default(),
        }
    }
}

/// Environment variables of one command, by name. Their values are never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretEnv(pub BTreeMap<String, String>);

impl fmt::Debug for SecretEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// One command.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Program and arguments. A program without a slash is looked up in the inner `PATH`.
    pub argv: Vec<OsString>,
    /// Working folder relative to the workspace. Absolute paths, `..` and links that lead outside are
    /// refused.
    pub cwd: PathBuf,
    /// After this time, everything the command started is killed.
    pub timeout: Duration,
    /// Bytes on stdin; `None` is `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// Maximum number of bytes kept of stdout and of stderr, each.
    pub keep_bytes_max: usize,
    /// Hosts the command may reach through docket; `None` means no network. Without isolation, this has no
    /// effect: the command has docket's own network access.
    pub network: Option<Arc<AllowList>>,
    /// Variables for this command only. They override variables of the sandbox with the same name.
    pub env: SecretEnv,
}

impl CommandSpec {
    /// A program with arguments, in the workspace's root, with a timeout of two minutes.
    pub fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: PathBuf::new(),
            timeout: Duration::from_secs(120),
            stdin: None,
            keep_bytes_max: KEEP_BYTES_DEFAULT,
            network: None,
            env: SecretEnv::default(),
        }
    }

    /// An interactive shell that reads none of the user's startup files: bash if the host has it,
    /// else sh.
    pub fn interactive_shell() -> Self {
        if Path::new("/bin/bash").exists() {
            Self::new(["/bin/bash", "--norc", "-i"])
        } else {
            Self::new(["/bin/sh", "-i"])
        }
    }

    /// A shell command line: bash if the host has it, because models write bash, else sh.
    pub fn shell(line: impl Into<OsString>) -> Self {
        let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        Self::new([OsString::from(shell), "-c".into(), line.into()])
    }
}

/// How a person is connected to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InteractionMode {
    /// Through a separate terminal of the command, which docket relays to its own.
    Terminal,
    /// Through its output alone; its input is empty, or `CommandSpec::stdin`.
    Pipes,
    /// Like `Pipes`, but all output goes to standard error, because standard output has another
    /// use.
    PipesToStderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandExit {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// docket ended it at its timeout.
    TimedOut,
    /// It exceeded a limit. Memory and processes are limited only where control groups are
    /// available.
    Exceeded(ExceededResource),
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    pub exit: CommandExit,
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
    /// From the start of the init to the end of the last process.
    pub duration_ms: u64,
    /// Protected paths that the command created or changed and that were restored: a few names, and the
    /// number of the rest.
    pub restored_paths: Vec<String>,
    /// Hosts it reached or was refused, if it had network access.
    pub network: Option<NetworkActivity>,
}
