//! Detects changes in a workspace since the last snapshot.

pub(super) mod ignore_rules;
pub(super) mod index;
pub(super) mod index_updater;
pub(super) mod open_workspace;
pub(super) mod snapshot_error;
pub(super) mod walk;
