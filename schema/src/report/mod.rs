//! What runs cost and how well they went: folds over the log alone, for people and programs that compare. Pure.
//!
//! Each run's events are taken once, in the stream that wrote them: what a fork shares with its parent counts for the
//! run that did it and paid for it, and for no other.

mod artifacts;
mod cost;
mod cost_report;
mod measure;
mod metrics;
mod standing;
mod week;

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod measure_tests;

pub use artifacts::artifacts_owed;
pub use cost::*;
pub use cost_report::*;
pub use measure::*;
pub use metrics::*;
pub use week::*;
