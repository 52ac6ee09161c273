//! Groups that each measure one part of the worker, in this process.

pub(crate) mod edit;
pub(crate) mod engine;
pub(crate) mod sandbox;
pub(crate) mod search;
pub(crate) mod snapshots;
