//! Runs agents: pure engines, the driver that performs what they decide, and all it needs for that.
//!
//! Knows `docket-schema` only; speaks to the coordinator over HTTP, never to the database.
//! Processes are started in `sandbox` and `process` only.

pub mod bootstrap;
pub mod clock;
pub mod edit;
pub mod model;
pub mod process;
pub mod sandbox;
pub mod workspace;
