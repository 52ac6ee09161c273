//! The two terminal user interfaces: a run turn by turn, and the live overview.

pub(crate) mod step;
pub(crate) mod top;
