//! The declared figures, how much is measured for them, and the values that they got.

mod effort;
mod figures;
mod group;
mod listing;
mod results;
mod stats;

pub(crate) use effort::Effort;
pub(crate) use group::Group;
pub(crate) use listing::list_figures;
pub(crate) use results::{LEFT_OUT, Report};
pub(crate) use stats::{Samples, rate};
