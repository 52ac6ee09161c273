//! Runs agents: pure engines, the driver, models, tools, workspace, sandbox, supervisor.
//!
//! Knows `docket-schema` only; speaks to the coordinator by HTTP, never to the database.

pub mod edit;
pub mod tools;
