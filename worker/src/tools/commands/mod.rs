//! The tools that run a shell line, and the report of how it ended.

pub(super) mod config_restore;
pub(super) mod run_command;
pub(super) mod shell_tool;
pub(super) mod venv;
