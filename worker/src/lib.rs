
//!
//! Knows `docket-schema` only; speaks to the coordinator by HTTP, never to a database.
//! Knows `docket-schema` only; speaks to the coordinator over HTTP, never to the database.
//! Processes are started in `sandbox` and `process` only.
//! Runs agents: pure engines, the driver that performs what they decide, and all it needs for that.
//! Runs agents: pure engines, the one IO shell that drives them, models, tools, workspace, sandbox.
//! Runs agents: pure engines, the one driver that performs what they decide, models, tools, workspace,
//! The crate knows `docket_schema` only and speaks to a coordinator over HTTP. Processes are started in
//! [`process`] (trusted ones) and [`sandbox`] (everything a model asks for), nowhere else.
//! [`process`] (trusted ones) and `sandbox` (everything a model asks for), nowhere else.
//! sandbox and supervisor.
pub mod bootstrap;
pub mod clock;
pub mod edit;
pub mod model;
pub mod process;
pub mod sandbox;
pub mod workspace;
