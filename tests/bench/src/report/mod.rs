//! The declared figures, the effort spent on them, and their values.

mod effort;
mod figures;
mod group;
mod listing;
mod results;
mod stats;

pub(crate) use effort::EffortLevel;
pub(crate) use group::FigureGroup;
pub(crate) use listing::list_figures;
pub(crate) use results::{BenchReport, LEFT_OUT};
pub(crate) use stats::{Samples, rate_per_second};
