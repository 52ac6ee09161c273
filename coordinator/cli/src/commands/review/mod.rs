//! Commands by which a person takes a result or does not.

pub(crate) mod accept;
pub(crate) mod apply;
pub(crate) mod push;
pub(crate) mod reject;
