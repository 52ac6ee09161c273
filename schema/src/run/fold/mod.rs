//! What each event does to the state of a run.

pub(super) mod transition;
