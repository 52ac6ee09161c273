//! The wall around everything a model asks for: commands, and the tests, linters and git that docket itself
//! starts in a workspace.
//!
//! Layers together, none alone: namespaces (user, mount, pid, net, ipc, uts) over a root that is an allow
//! list, Landlock and seccomp inside, control groups and limits, a look at what must not change.
//! [`Sandbox::prepare`] probes the host and runs harmless controls before it answers, for a sandbox that cannot
//! start must not count as a wall.
//!
//! Inside, the workspace is `/workspace` whatever its path on the host, so recorded outputs do not depend on
//! the machine (with [`BackendChoice::None`] there is no inside: it stays where it is). HOME, `/tmp`, `/run`
//! and `/dev/shm` are empty at each call's start and gone at its end; only the workspace lasts.
//!
//! A command is started through docket itself, executed again with [`INIT_MARKER`] as first argument: a
//! multi-threaded process can neither unshare a user namespace nor fork safely. A binary that uses this
//! crate calls [`init_call`] first thing in `main`.
//!
//! Ownership: when docket is root, what it lays into a workspace must belong to [`workspace_owner`]; the
//! command's user inside is that user outside, and never uid 0 of the host.

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
