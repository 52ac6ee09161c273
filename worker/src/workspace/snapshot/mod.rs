//! What changed in a workspace since it was last looked at.

pub(super) mod ignored;
pub(super) mod index;
pub(super) mod merge;
pub(super) mod open_workspace;
pub(super) mod snapshot_error;
pub(super) mod walk;
