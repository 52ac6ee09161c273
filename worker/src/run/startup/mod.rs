//! Startup of a run process: pins for a new run, restore for a continued one, checks on the base.

pub(super) mod baseline_checks;
pub(super) mod mcp_servers;
pub(super) mod pin_run;
pub(super) mod project_context;
pub(super) mod recovery;
pub(super) mod start_run;
