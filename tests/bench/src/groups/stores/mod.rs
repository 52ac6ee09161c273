//! Groups that measure a store: appends, tasks that do nothing, full stores, folding a log.

pub(crate) mod appends;
pub(crate) mod checkpoints;
pub(crate) mod drain;
pub(crate) mod finished;
pub(crate) mod fold;
