//! What every tool is given, and what it gives back.

pub(super) mod base_view;
pub(super) mod memory_backend;
pub(super) mod runner;
pub(super) mod tool_context;
