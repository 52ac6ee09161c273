//! The configuration that a run pins at its start, so that its decisions depend only on its log.

pub(super) mod external_tool;
pub(super) mod role_spec;
pub(super) mod run_config;
pub(super) mod sampling;
pub(super) mod unverified_policy;

pub use external_tool::*;
pub use role_spec::*;
pub use run_config::*;
pub use sampling::*;
pub use unverified_policy::*;
