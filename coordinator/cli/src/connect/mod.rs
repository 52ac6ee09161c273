//! Connecting to a coordinator (remote, the home's, or in this process) and resolving ids and names.

pub(crate) mod batch_lookup;
pub(crate) mod coordinator;
pub(crate) mod cursor;
pub(crate) mod local_coordinator;
pub(crate) mod logging;
pub(crate) mod notifiers;
pub(crate) mod resolve;
pub(crate) mod task_filter;
