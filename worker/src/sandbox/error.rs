//! Why a sandbox could not be made, or a command could not be run in it. A command that ran and failed is
//! no error.

use std::{io, path::PathBuf};

/// See the variants; each names its remedy.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The workspace is no absolute path of a folder.
    #[error("the workspace {path} cannot be used: it must be an existing folder with an absolute UTF-8 path")]
    Workspace {
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
    WorkspaceOwner {
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
    Readonly {
        /// What was given.
        path: PathBuf,
    },
    /// bubblewrap was asked for and is not there.
    #[error(
        "bubblewrap is not installed in a system folder: install the package bubblewrap or choose another sandbox"
    )]
    NoBubblewrap,
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
    Control {
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
    Cwd {
        /// What was asked for.
        cwd: PathBuf,
    },
    /// The program could not be executed inside.
    #[error("cannot execute {program} inside the sandbox")]
    Execute {
        /// The program.
        program: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init could not build the walls, so nothing was run.
    #[error("the sandbox could not be built (step: {step}); nothing was run")]
    Setup {
        /// Which step failed.
        step: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init could not be started or reached.
    #[error("cannot start the sandbox's init {program}")]
    Start {
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
    Limits(#[source] io::Error),
    /// Another docket has commands in the workspace.
    #[error("another docket runs commands in the workspace {path}: wait for their end")]
    Busy {
        /// The workspace.
        path: PathBuf,
    },
    /// The workspace could not be looked through, or what a command changed of hooks and configuration not be put back.
    #[error("hooks and configuration of the workspace {path} could not be protected: {source}")]
    Protect {
        /// The workspace.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The init died without a word; everything in it died with it.
    #[error(
        "the sandbox's init ended without a report, and every process in it too: look for a kill by memory shortage ({said})"
    )]
    Lost {
        /// What bubblewrap said, if it did.
        said: String,
    },
    /// The plan could not be handed over.
    #[error("the sandbox's plan cannot be written down")]
    Plan(#[source] serde_json::Error),
    /// The plan or the command is too large to be handed over.
    #[error("the command cannot be handed to the sandbox: its arguments are too large")]
    Frame(#[source] io::Error),
}
