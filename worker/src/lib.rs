//! Runs agents: pure engines, the one IO shell that drives them, models, tools, workspace, sandbox.
//!
//! Knows `docket-schema` only; speaks to the coordinator by HTTP, never to a database.

pub mod model;
