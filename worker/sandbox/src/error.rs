//! Why a sandbox could not be made, or a command could not be run in it. A command that ran and failed is
//! no error.

use std::{io, path::PathBuf};

use nix::errno::Errno;

use super::config::CommandOutput;

/// Steps of building the walls that handle what lies in the workspace.
const WORKSPACE_STEPS: [&str; 3] = ["pin ", "cover ", "protect "];

/// See the variants; each names its remedy.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The workspace is no absolute path of a folder.
    #[error("the workspace {path} cannot be used: it must be an existing folder with an absolute UTF-8 path")]
    InvalidWorkspace {
        /// What was given.
        path: PathBuf,
        /// The reason, where the system gave one.
        #[source]
        source: Option<io::Error>,
    },
    /// docket is root and the workspace belongs to somebody the command will not be.
    #[error(
        "the workspace {path} belongs to uid {found_uid}, commands run as uid {wanted_uid}: chown it (workspace_owner)"
    )]
    WrongWorkspaceOwner {
        /// The workspace.
        path: PathBuf,
        /// Its owner.
        found_uid: u32,
        /// Who it must belong to.
        wanted_uid: u32,
    },
    /// A read-only path is missing, cannot be named to the init, or holds the workspace.
    #[error(
        "the read-only path {path} must exist, be absolute UTF-8 and not hold the workspace: name a narrower one"
    )]
    InvalidReadonlyPath {
        /// What was given.
        path: PathBuf,
    },
    /// bubblewrap was asked for and is not there.
    #[error(
        "bubblewrap is not installed in a system folder: install the package bubblewrap or choose another sandbox"
    )]
    BubblewrapNotInstalled,
    /// Too few walls.
    #[error(
        "this host gives too few layers ({missing}): enable user namespaces and seccomp (docket doctor tells which), or say --sandbox none"
    )]
    TooFewLayers {
        /// The layers that miss and why.
        missing: String,
    },
    /// A control did not see what it must see.
    #[error(
        "the {backend} sandbox failed its control ({found}): docket doctor tells what this host lacks; --sandbox none does without walls"
    )]
    SelfTestFailed {
        /// Which backend.
        backend: &'static str,
        /// What was seen.
        found: String,
        /// The failure underneath, if it never got that far.
        #[source]
        source: Option<Box<SandboxError>>,
    },
    /// The command names no program.
    #[error("the command is empty: name a program")]
    EmptyCommand,
    /// stdin is too large.
    #[error("stdin of {bytes} bytes is over the limit of {limit_bytes}: put it in a file of the workspace")]
    StdinTooLarge {
        /// How much was given.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The working folder would leave the workspace.
    #[error("the working folder {cwd} is not inside the workspace: give a path below it, without `..`")]
    InvalidCwd {
        /// What was asked for.
        cwd: PathBuf,
    },
    /// The program could not be executed inside.
    #[error("cannot execute {program} inside the sandbox")]
    ExecuteFailed {
        /// The program.
        program: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init could not build the walls, so nothing was run.
    #[error("the sandbox could not be built (step: {step}); nothing was run")]
    SetupFailed {
        /// Which step failed.
        step: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init could not be started or reached.
    #[error("cannot start the sandbox's init {program}")]
    StartFailed {
        /// Its program.
        program: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The control group that bounds the commands cannot be used any more.
    #[error(
        "the control group for the sandbox's commands cannot be used; nothing was run (docket doctor tells more)"
    )]
    Cgroup(#[source] io::Error),
    /// Another docket has commands in the workspace.
    #[error("another docket runs commands in the workspace {path}: wait for their end")]
    WorkspaceBusy {
        /// The workspace.
        path: PathBuf,
    },
    /// The workspace could not be looked through, so nothing was run.
    #[error("hooks and configuration of the workspace {path} could not be protected: {source}")]
    ProtectFailed {
        /// The workspace.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A command ended, and what it changed of hooks and configuration could not be put back.
    #[error("hooks and configuration of the workspace {path} could not be put back: {source}")]
    RestoreFailed {
        /// The workspace.
        path: PathBuf,
        /// The result of the command.
        output: Box<CommandOutput>,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init died without a word; everything in it died with it.
    #[error(
        "the sandbox's init ended without a report, and every process in it too: look for a kill by memory shortage ({said})"
    )]
    InitLost {
        /// What bubblewrap said, if it did.
        said: String,
    },
    /// The plan could not be handed over.
    #[error("the sandbox's plan cannot be written down")]
    EncodePlan(#[source] serde_json::Error),
    /// The plan or the command is too large to be handed over.
    #[error("the command cannot be handed to the sandbox: its arguments are too large")]
    FrameTooLarge(#[source] io::Error),
}

impl SandboxError {
    /// Whether the contents of the workspace, or the command itself, can cause this error. All others come from the host.
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
            // A command can use up the memory, and end an init that no walls protect from it.
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

/// Whether the machine lacks something: disk space, memory, open files.
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
