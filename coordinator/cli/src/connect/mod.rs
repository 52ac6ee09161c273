//! The way to a coordinator: one elsewhere, the home's, or one in this process; and what ids and names mean there.

pub(crate) mod batch_lookup;
pub(crate) mod coordinator;
pub(crate) mod cursor;
pub(crate) mod local_coordinator;
pub(crate) mod logging;
pub(crate) mod notifiers;
pub(crate) mod resolve;
pub(crate) mod task_filter;
