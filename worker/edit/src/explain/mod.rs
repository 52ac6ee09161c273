//! Texts for the model: why an edit was refused, what differs, and the diff of an applied edit.

pub(crate) mod diff;
pub(crate) mod mismatch;
pub(crate) mod refusal;
