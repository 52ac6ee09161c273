//! The two screens: a run turn by turn, and everything as it goes.

pub(crate) mod step;
pub(crate) mod top;
