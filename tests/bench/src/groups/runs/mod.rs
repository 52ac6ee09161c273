//! Groups with a real supervisor and its run processes.

pub(crate) mod crash;
pub(crate) mod isolated;
pub(crate) mod storage;
pub(crate) mod turns;
