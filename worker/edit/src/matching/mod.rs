//! Finds the one place that a search means, level by level, from exact to similar.

pub(crate) mod blanks;
pub(crate) mod distance;
pub(crate) mod exact;
pub(crate) mod fuzzy;
pub(crate) mod hidden;
pub(crate) mod hint;
pub(crate) mod locate;
