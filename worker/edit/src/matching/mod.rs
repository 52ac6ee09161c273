//! Finds the one place that a search means, level by level, from exact to similar.

pub(crate) mod blank_lines;
pub(crate) mod edit_distance;
pub(crate) mod exact;
pub(crate) mod fuzzy;
pub(crate) mod hint;
pub(crate) mod locate;
pub(crate) mod redacted_search;
