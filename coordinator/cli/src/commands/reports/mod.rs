//! Commands for costs, metrics and comparisons.

pub(crate) mod compare;
pub(crate) mod cost;
pub(crate) mod metrics;
