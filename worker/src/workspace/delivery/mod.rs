//! What a run left, handed over: as a patch, a commit on a branch, or a push.

pub(super) mod commit_message;
pub(super) mod deliver;
pub(super) mod delivery_check;
pub(super) mod meanwhile;
pub(super) mod onto;
pub(super) mod patch;
pub(super) mod push;
