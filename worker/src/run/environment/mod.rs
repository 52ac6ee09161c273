//! The environment of a run on this machine: workspace, sandbox, setup commands and network access.

pub(super) mod network_grants;
pub(super) mod run_workspace;
pub(super) mod sandbox_runner;
pub(super) mod setup;
