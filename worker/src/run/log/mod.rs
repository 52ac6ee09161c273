//! A run's reads from the coordinator and appends to its stream: events with their blobs, under the lease's epoch.

pub(super) mod blob_cache;
pub(super) mod failpoint;
pub(super) mod journal;
pub(super) mod pending_append;
