//! Executes tool calls and final checks, and records their effects as events.

pub(super) mod available_tools;
pub(super) mod base_view;
pub(super) mod call_batch;
pub(super) mod execution;
pub(super) mod external_calls;
pub(super) mod final_checks;
pub(super) mod linting;
pub(super) mod malformed;
pub(super) mod memory_client;
pub(super) mod parallel_reads;
pub(super) mod read_cache;
pub(super) mod redaction;
pub(super) mod tool_executor;
pub(super) mod write_scope;
