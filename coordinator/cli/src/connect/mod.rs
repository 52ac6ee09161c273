//! The way to a coordinator: one elsewhere, the home's, or one in this process; and what ids and names mean there.

pub(crate) mod access;
pub(crate) mod batches;
pub(crate) mod cursor;
pub(crate) mod filter;
pub(crate) mod local;
pub(crate) mod logging;
pub(crate) mod notifiers;
pub(crate) mod resolve;
