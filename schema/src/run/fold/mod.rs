//! The fold of a run: the effect of each event on its state.

pub(super) mod transition;
