//! The tools that run a shell line, and how its end is told.

pub(super) mod config_restore;
pub(super) mod run_command;
pub(super) mod shell_tool;
pub(super) mod venv;
