//! The start of a run process: what a run that begins pins, what one that goes on restores, the checks on its base.

pub(super) mod baseline_checks;
pub(super) mod mcp_servers;
pub(super) mod pin_run;
pub(super) mod project_context;
pub(super) mod recovery;
pub(super) mod start_run;
