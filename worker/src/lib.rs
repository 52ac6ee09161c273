//! The worker: pure engines that decide what a run does next, the run loop that executes their decisions, and
//! supporting modules.
//!
//! It talks to the coordinator over HTTP, never to the database. Processes are started only in [`process`]
//! (trusted ones) and in the crate `docket-sandbox` (commands requested by a model).

pub mod bootstrap;
mod calls;
pub mod client;
pub mod clock;
pub mod engine;
pub mod lint;
pub mod mcp;
pub mod model;
pub mod policy;
pub mod process;
pub mod progress;
pub mod project;
pub mod replay;
pub mod run;
#[cfg(test)]
mod sandbox_escape_tests;
pub mod secret;
pub(crate) mod shell;
pub mod sse;
pub mod supervisor;
pub mod syntax;
pub mod tools;
pub mod workspace;
