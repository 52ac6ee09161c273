//! Delivery of a run's result: as a patch, a commit on a branch, or a push.

pub(super) mod commit_message;
pub(super) mod delivery_check;
pub(super) mod push;
pub(super) mod rebase;
pub(super) mod result_commit;
pub(super) mod tree_diff;
pub(super) mod upstream_changes;
