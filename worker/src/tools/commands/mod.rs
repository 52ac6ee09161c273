//! The tools that run a shell line, and how its end is told.

pub(super) mod line;
pub(super) mod put_back;
pub(super) mod run_command;
pub(super) mod venv;
