//! Cost and quality reports: folds over the log for people and programs. Pure.
//!
//! Each run's events are counted once, in the stream that recorded them: what a fork shares with its parent
//! counts only for the run that did it and paid for it.

mod artifact_tracker;
mod cost;
mod cost_report;
mod iso_week;
mod metrics;
mod task_metrics;
mod tree_verification;

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod task_metrics_tests;

pub use artifact_tracker::required_artifacts;
pub use cost::*;
pub use cost_report::*;
pub use iso_week::*;
pub use metrics::*;
pub use task_metrics::*;
