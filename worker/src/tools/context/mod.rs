//! Input and output types shared by all tools.

pub(super) mod base_view;
pub(super) mod memory_backend;
pub(super) mod runner;
pub(super) mod tool_context;
