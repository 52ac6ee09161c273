//! The sandbox for everything a model requests: commands, and the tests, linters and git that docket itself
//! starts in a workspace.
//!
//! It combines layers and relies on none alone: namespaces (user, mount, pid, net, ipc, uts) over a root that
//! is an allow list, Landlock and seccomp inside, control groups and limits, and a scan for changes to
//! protected files. [`Sandbox::prepare`] probes the host and runs harmless self-tests before it returns,
//! because a sandbox that cannot start must not count as isolation.
//!
//! Inside, the workspace is `/workspace` whatever its path on the host, so recorded outputs do not depend on
//! the machine (with [`BackendChoice::None`] there is no inside: the workspace keeps its path). HOME, `/tmp`,
//! `/run` and `/dev/shm` are empty at the start of each call and removed at its end; only the workspace
//! persists.
//!
//! A command is started through docket itself, executed again with [`INIT_MARKER`] as the first argument: a
//! multi-threaded process can neither unshare a user namespace nor fork safely. A binary that uses this crate
//! calls [`sandbox_init_args`] first in `main`.
//!
//! Ownership: when docket is root, everything it creates in a workspace must belong to [`workspace_owner`];
//! the command's user inside is that user outside, and never uid 0 of the host.

mod capture;
mod cgroup;
mod config;
mod error;
mod execution;
mod fd_passing;
pub mod git_repository;
mod host;
mod init;
mod init_pool;
mod limits;
mod ownership;
mod plan;
mod protect;
mod proxy;
mod quota;
mod rootfs;
mod run;
mod safe_walk;
mod terminal;
#[cfg(test)]
mod tests;
mod toolchains;

pub use capture::{CapturedStream, OutputListener};
pub use config::{
    BackendChoice, CommandExit, CommandOutput, CommandSpec, INIT_MARKER, InitProgram, InteractionMode,
    KEEP_BYTES_DEFAULT, SandboxConfig, SecretEnv, WORKSPACE_INSIDE,
};
pub use error::SandboxError;
pub use execution::CommandIo;
pub use host::{
    HostReport, LayerState, MissingLayer, SandboxLayer, SandboxReport, probe_host, workspace_owner,
};
pub use init::{sandbox_init_args, sandbox_init_main};
pub use limits::{Limits, default_limits as limits_of_this_host};
pub use ownership::{OwnershipError, OwnershipGuard};
pub use run::{CheckedHost, Sandbox};
pub use toolchains::TOOL_HOME_VARIABLES;
