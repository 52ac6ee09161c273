//! The coordinator: pure queue decisions, the event store on SQLite and PostgreSQL, the HTTP API.
//!
//! Knows `docket-schema` only. The `docket` binary beside it is the one place that knows the worker
//! as well.

pub mod archive;
pub mod clock;
mod dashboard;
pub mod decide;
pub mod gc;
pub mod history;
pub mod http;
mod lease_length;
pub mod limits;
pub mod memory;
pub mod meter;
pub mod notify;
pub mod past;
mod place;
pub mod reports;
pub mod schedules;
pub mod server;
pub mod store;
pub mod tasks;
