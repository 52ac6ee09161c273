//! The world around a run on this machine: its workspace, its sandbox, its setup commands, its way to the network.

pub(super) mod network_grants;
pub(super) mod run_workspace;
pub(super) mod sandbox_runner;
pub(super) mod setup;
