//! Runs agents: pure engines, the one driver that performs what they decide, models, tools, workspace,
//! sandbox and supervisor.
//!
//! The crate knows `docket_schema` only and speaks to a coordinator over HTTP. Processes are started in
//! [`process`] (trusted ones) and `sandbox` (everything a model asks for), nowhere else.

pub mod process;
pub mod workspace;
