//! Commands that only use this machine.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod man;
pub(crate) mod policy;
pub(crate) mod sandbox;
pub(crate) mod tool;
