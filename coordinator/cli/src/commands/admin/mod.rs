//! Commands for operating a coordinator.

pub(crate) mod archive;
pub(crate) mod dashboard;
pub(crate) mod db;
pub(crate) mod gc;
pub(crate) mod inbox;
pub(crate) mod limit;
pub(crate) mod memory;
pub(crate) mod notify;
pub(crate) mod queue;
pub(crate) mod token;
pub(crate) mod workers;
