//! Runs agents: pure engines, the driver that performs what they decide, and all it needs for that.
//!
//! Knows `docket-schema` only; speaks to the coordinator over HTTP, never to the database.
//! Processes are started in [`process`] (trusted ones) and [`sandbox`] (whatever a model asks for)
//! and nowhere else.

pub mod bootstrap;
mod calls;
pub mod client;
pub mod clock;
pub mod driver;
pub mod engine;
mod git_shape;
pub mod lint;
pub mod mcp;
pub mod model;
pub mod policy;
pub mod process;
pub mod progress;
pub mod project;
pub mod replay;
pub mod sandbox;
pub mod secret;
pub mod sse;
pub mod supervisor;
pub mod syntax;
pub mod tools;
pub mod workspace;
