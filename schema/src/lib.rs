//! Data model of docket: ids, messages, tasks, events, snapshots, HTTP bodies, and the pure folds over them.
//!
//! Coordinator and worker both depend on this crate and not on each other. It depends on neither and contains
//! no IO, clock or randomness.
#![warn(missing_docs)]

pub mod api;
pub mod artifact;
pub mod blob_refs;
pub mod content;
pub mod eval;
pub mod event;
pub mod export;
pub mod history;
pub mod ids;
pub mod message;
pub mod migrations;
pub mod policy;
mod problem_code;
pub mod queue;
pub mod redact;
pub mod report;
pub mod run;
pub mod schemas;
pub mod snapshot;
pub mod system;
pub mod task;
mod task_state;
pub mod tool;
pub mod trace;
#[cfg(test)]
pub mod upcast_tests;
