//! What callers say to the sandbox and what they get back. Plain data; no behaviour but constructors.

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

/// First argument of docket's own binary when it is to act as the init of a sandbox.
pub const INIT_MARKER: &str = "__sandbox-init";

/// Where the workspace is mounted inside.
pub const WORKSPACE_INSIDE: &str = "/workspace";

/// How much of each stream is kept when the caller names nothing else: a long test log, not a core dump.
pub const KEEP_BYTES_DEFAULT: usize = 1024 * 1024;

/// Which wall is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendChoice {
    /// Our own when its controls pass, else bubblewrap where it is installed.
    Auto,
    /// bubblewrap or nothing.
    Bubblewrap,
    /// Our own namespaces or nothing.
    Namespaces,
    /// No wall. Commands run as docket's own user; only the end of every process with its call is kept.
    None,
}

/// How docket is executed again as a sandbox's init.
#[derive(Clone, Debug)]
pub struct InitProgram {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments; the first is [`INIT_MARKER`].
    pub args: Vec<OsString>,
}

impl Default for InitProgram {
    /// The running executable, also after its file was replaced by an upgrade.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec![INIT_MARKER.into()] }
    }
}

/// What a sandbox is made of.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// Which wall.
    pub backend: BackendChoice,
    /// The one writable folder of the host, absolute.
    pub workspace: PathBuf,
    /// Further folders and files that can be read inside, under their own paths (the base's object cache).
    /// Missing ones are refused.
    pub readonly: Vec<PathBuf>,
    /// Environment on top of the scrubbed one.
    pub env: Vec<(String, String)>,
    /// What commands may use together. Not held without walls.
    pub limits: Limits,
    /// The program that acts as init.
    pub init_program: InitProgram,
}

impl SandboxConfig {
    /// The usual sandbox around one workspace.
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

/// Variables of one command's environment, by name; nobody prints their values.
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
    /// Program and arguments. A program without a slash is looked up along the inner `PATH`.
    pub argv: Vec<OsString>,
    /// Working folder relative to the workspace. Absolute paths and `..` are refused, links that lead out too.
    pub cwd: PathBuf,
    /// After this everything the command started is killed.
    pub timeout: Duration,
    /// Bytes on stdin; `None` is `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// How much of stdout and of stderr is kept, each.
    pub keep_bytes_max: usize,
    /// What of the network it may reach, through docket; `None` is nothing. Without walls it reaches what docket does,
    /// and this says nothing.
    pub network: Option<Arc<AllowList>>,
    /// Variables of its own: no other command has them. One takes the place of what the sandbox gives by that name.
    pub env: SecretEnv,
}

impl CommandSpec {
    /// A program with arguments, in the workspace's root, with two minutes.
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

    /// A shell for a person, without any file of theirs: bash where the host has one, else sh.
    pub fn interactive_shell() -> Self {
        if Path::new("/bin/bash").exists() {
            Self::new(["/bin/bash", "--norc", "-i"])
        } else {
            Self::new(["/bin/sh", "-i"])
        }
    }

    /// A line of shell: bash where the host has one, for that is what models write, else sh.
    pub fn shell(line: impl Into<OsString>) -> Self {
        let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        Self::new([OsString::from(shell), "-c".into(), line.into()])
    }
}

/// How a person is at a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InteractionMode {
    /// By a terminal of the command's own, which docket's terminal is joined to.
    Terminal,
    /// By what it says alone; its input is empty, or `CommandSpec::stdin`.
    Pipes,
    /// The same, and all that it says goes to standard error: standard output is for somebody else.
    PipesToStderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandExit {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal of this number.
    Signal(i32),
    /// At its deadline, by us.
    TimedOut,
    /// For it used more than allowed. Memory and processes only where control groups can be made.
    Exceeded(ExceededResource),
}

/// What a command left behind.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// How it ended.
    pub exit: CommandExit,
    /// Its stdout.
    pub stdout: CapturedStream,
    /// Its stderr.
    pub stderr: CapturedStream,
    /// From the start of the init to the end of the last process.
    pub duration_ms: u64,
    /// Protected paths that it made or changed, and that are as before again. A few names; the rest as a number.
    pub restored_paths: Vec<String>,
    /// What it reached, and what it was refused, where it had the network.
    pub network: Option<NetworkActivity>,
}
