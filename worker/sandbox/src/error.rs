//! Errors of creating a sandbox or running a command in it. A command that ran and failed is not an
//! error.

use std::{io, path::PathBuf};

use nix::errno::Errno;

use super::config::CommandOutput;

/// Setup steps that depend on the contents of the workspace.
const WORKSPACE_STEPS: [&str; 3] = ["pin ", "cover ", "protect "];

/// Errors of the sandbox. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The workspace is not an absolute path of a folder.
    #[error("the workspace {path} cannot be used: it must be an existing folder with an absolute UTF-8 path")]
    InvalidWorkspace {
        /// The given path.
        path: PathBuf,
        /// The underlying error, if there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// docket is root, and the workspace belongs to a user other than the one that runs commands.
    #[error(
        "the workspace {path} belongs to uid {found_uid}, but commands run as uid {wanted_uid}: chown it (workspace_owner)"
    )]
    WrongWorkspaceOwner {
        path: PathBuf,
        /// Its owner.
        found_uid: u32,
        /// The required owner.
        wanted_uid: u32,
    },
    /// A read-only path is missing, cannot be passed to the init, or contains the workspace.
    #[error(
        "the read-only path {path} must exist, be absolute UTF-8 and not contain the workspace: choose a narrower one"
    )]
    InvalidReadonlyPath {
        /// The given path.
        path: PathBuf,
    },
    /// bubblewrap was requested but is not installed.
    #[error(
        "bubblewrap is not installed in a system folder: install the bubblewrap package or choose another sandbox"
    )]
    BubblewrapNotInstalled,
    /// The host lacks required layers.
    #[error(
        "this host lacks required sandbox layers ({missing}): enable user namespaces and seccomp (see docket doctor), or use --sandbox none"
    )]
    TooFewLayers {
        /// The missing layers and the reasons.
        missing: String,
    },
    /// A self-test did not see the expected isolation.
    #[error(
        "the {backend} sandbox failed its self-test ({found}): docket doctor shows what this host lacks; --sandbox none runs without isolation"
    )]
    SelfTestFailed {
        backend: &'static str,
        /// What the self-test found.
        found: String,
        /// The underlying error, if the self-test could not run.
        #[source]
        source: Option<Box<SandboxError>>,
    },
    /// The command names no program.
    #[error("the command is empty: name a program")]
    EmptyCommand,
    /// stdin is too large.
    #[error("stdin of {bytes} bytes is over the limit of {limit_bytes}: put it in a file of the workspace")]
    StdinTooLarge {
        /// The given size.
        bytes: usize,
        limit_bytes: usize,
    },
    /// The working folder would be outside the workspace.
    #[error("the working folder {cwd} is not inside the workspace: give a path below it, without `..`")]
    InvalidCwd {
        /// The requested folder.
        cwd: PathBuf,
    },
    /// The program could not be executed inside the sandbox.
    #[error("cannot execute {program} inside the sandbox")]
    ExecuteFailed {
        program: String,
        #[source]
        source: io::Error,
    },
    /// The init could not build the sandbox, so nothing was run.
    #[error("the sandbox could not be built (step: {step}); nothing was run")]
    SetupFailed {
        /// The failed step.
        step: String,
        #[source]
        source: io::Error,
    },
    /// The init could not be started or reached.
    #[error("cannot start the sandbox's init {program}")]
    StartFailed {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The control group of the sandbox's commands is no longer usable.
    #[error(
        "the control group for the sandbox's commands cannot be used; nothing was run (see docket doctor)"
    )]
    Cgroup(#[source] io::Error),
    /// Another docket process runs commands in the workspace.
    #[error("another docket process is running commands in the workspace {path}: wait until they end")]
    WorkspaceBusy { path: PathBuf },
    /// The workspace could not be scanned, so nothing was run.
    #[error("hooks and configuration of the workspace {path} could not be protected: {source}")]
    ProtectFailed {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A command ended, but its changes to hooks and configuration could not be reverted.
    #[error("hooks and configuration of the workspace {path} could not be restored: {source}")]
    RestoreFailed {
        path: PathBuf,
        /// The result of the command.
        output: Box<CommandOutput>,
        #[source]
        source: io::Error,
    },
    /// The init died without a report, and all its processes died with it.
    #[error(
        "the sandbox's init and all its processes ended without a report: check whether the kernel killed it for lack of memory ({said})"
    )]
    InitLost {
        /// bubblewrap's own messages, if any.
        said: String,
    },
    /// The plan could not be serialized.
    #[error("cannot serialize the sandbox's plan")]
    EncodePlan(#[source] serde_json::Error),
    /// The plan or the command is too large to pass to the init.
    #[error("cannot pass the command to the sandbox: its arguments are too large")]
    FrameTooLarge(#[source] io::Error),
}

impl SandboxError {
    /// Returns whether the contents of the workspace, or the command itself, can cause this error. All others
    /// come from the host.
    #[must_use]
    pub fn is_workspace_fault(&self) -> bool {
        match self {
            Self::ProtectFailed { source, .. } | Self::RestoreFailed { source, .. } | Self::ExecuteFailed { source, .. } => {
                !is_host_shortage(source)
            }
            Self::SetupFailed { step, source } => {
                WORKSPACE_STEPS.iter().any(|own| step.starts_with(own)) && !is_host_shortage(source)
            }
            Self::EmptyCommand
            | Self::StdinTooLarge { .. }
            | Self::InvalidCwd { .. }
            // A command can exhaust the memory and thus kill an init that is not isolated from it.
            | Self::InitLost { .. }
            | Self::EncodePlan(_)
            | Self::FrameTooLarge(_) => true,
            Self::InvalidWorkspace { .. }
            | Self::WrongWorkspaceOwner { .. }
            | Self::InvalidReadonlyPath { .. }
            | Self::BubblewrapNotInstalled
            | Self::TooFewLayers { .. }
            | Self::SelfTestFailed { .. }
            | Self::StartFailed { .. }
            | Self::Cgroup(_)
            | Self::WorkspaceBusy { .. } => false,
        }
    }
}

/// Returns whether the machine lacks disk space, memory or open files.
fn is_host_shortage(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw).is_some_and(|errno| {
        matches!(
            errno,
            Errno::ENOSPC
                | Errno::EDQUOT
                | Errno::EROFS
                | Errno::EIO
                | Errno::EMFILE
                | Errno::ENFILE
                | Errno::ENOMEM
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_faults_are_distinguished_from_host_shortages() {
        let protect = |source| SandboxError::ProtectFailed { path: "/w".into(), source };
        let setup = |step: &str, errno: Errno| SandboxError::SetupFailed {
            step: step.to_owned(),
            source: errno.into(),
        };
        for (error, of_workspace) in [
            (protect(io::Error::other("folders nest too deep")), true),
            (protect(Errno::ELOOP.into()), true),
            (protect(Errno::EMFILE.into()), false),
            (protect(Errno::ENOSPC.into()), false),
            (setup("protect a/.git", Errno::ENOENT), true),
            (setup("unshare", Errno::EPERM), false),
            (setup("mount proc", Errno::EPERM), false),
            (SandboxError::InitLost { said: String::new() }, true),
            (SandboxError::WorkspaceBusy { path: "/w".into() }, false),
            (SandboxError::StartFailed { program: "/init".into(), source: Errno::EAGAIN.into() }, false),
        ] {
            assert_eq!(error.is_workspace_fault(), of_workspace, "{error:?}");
        }
    }
}
