//! The coordinator: pure queue decisions, the event store on SQLite and PostgreSQL, and the HTTP API.
//!
//! Depends on `docket-schema` only. The `docket` binary is the only crate that also depends on the worker.

mod app;
pub mod archive;
pub mod background;
pub mod clock;
mod dashboard;
pub mod decide;
mod error_chain;
pub mod gc;
pub mod history_cache;
pub mod history_provider;
pub mod http;
mod leases;
pub mod metrics;
pub mod notify;
mod object_storage;
pub mod reports;
pub mod server;
pub mod store;
pub mod system;
mod task_check;
pub mod wakeups;
