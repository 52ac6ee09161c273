//! What runs cost and how well they went: folds over the log alone, for people and programs that compare. Pure.
//!
//! Each run's events are taken once, in the stream that wrote them: what a fork shares with its parent counts for the
//! run that did it and paid for it, and for no other.

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
