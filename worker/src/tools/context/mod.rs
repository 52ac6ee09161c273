//! What every tool is given, and what it gives back.

pub(super) mod base_view;
pub(super) mod run_memory;
pub(super) mod runner;
pub(super) mod tool_context;
