//! The files of a run: pinned at submit, created on any machine, captured after each turn, restored,
//! delivered.
//!
//! - [`pin_base`] turns a commit of a repository into a [`Base`](docket_schema::snapshot::Base) and its blobs.
//! - [`materialize`] creates a workspace from a base; [`Workspace::open`] opens an existing one.
//! - [`Workspace::snapshot_paths`] and [`Workspace::snapshot_walk`] capture the changes since the last
//!   snapshot.
//! - [`restore`] restores a workspace to exactly a recorded tree and verifies it.
//! - [`build_result`] builds a patch or a branch from a run's result; [`compare_trees`] builds a patch
//!   between any two of its trees; `tree_view` compares recorded trees for display.
//! - [`checkout`] writes a recorded tree to a standalone folder; [`blame`] tells which turn wrote each line
//!   of a file.
//!
//! Called by the run loop, by submit and by the commands that show history. Invariants: no filter, hook or
//! helper defined by a repository is ever run; the source repository is written by [`ResultCommit`] alone; no
//! path is followed through a symbolic link; git is never pointed at a workspace's own `.git`, because a
//! model may write there.

mod blobs;
mod content_reader;
pub(crate) mod delivery;
pub(crate) mod disk;
mod materialize;
mod merge_child;
pub(crate) mod pin;
pub(crate) mod repository;
mod restore;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
pub(crate) mod tree_view;

pub use blobs::{BlobError, BlobReader, BlobSink, MemoryBlobs, PendingBlobs};
pub use content_reader::{BaseObjects, ContentReader, ContentsError};
pub use delivery::commit_message::CommitMessage;
pub use delivery::delivery_check::{RemoteBranch, check_branch_is_free, check_remote_branch};
pub use delivery::push::{GitRemote, PushError, PushOutcome};
pub use delivery::rebase::{BranchDelivery, CommitOrigin, DeliveredBranch, DeliveredCommit};
pub use delivery::result_commit::{CommitSignature, DeliverError, ResultCommit, build_result};
pub use delivery::tree_diff::{LineCounts, PatchOmission, TreeDiff, compare_trees};
pub use disk::dirfd::FileOwner;
pub use materialize::{MaterializeError, WorkspaceOptions, ensure_cached_base, materialize};
pub use merge_child::{MergeConflict, MergeOutcome, ParentTree, merge_child_changes};
pub use pin::base::{PIN_PART_BYTES, PinNote, PinOptions, PinnedBase, pin_base};
pub use repository::git::GitCallError;
pub use repository::local_repo::{BaseSource, DirtyTreePolicy};
pub use repository::pin_error::PinError;
pub use restore::{RestoreReport, RestoreTarget, RevertOutcome, restore, revert_disallowed_changes};
pub(crate) use snapshot::ignore_rules::VENV_FOLDER;
pub use snapshot::open_workspace::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, SnapshotDelta, Workspace};
pub use snapshot::snapshot_error::{RestoreError, SnapshotError};
pub use tree_view::blame::{BLAME_BYTES_MAX, BlameError, BlamedLine, LineAuthors, blame};
pub use tree_view::checkout::{CheckoutError, CheckoutReport, checkout};
pub use tree_view::manifest_diff::{ChangeView, FileDiff, apply_changes, diff_manifests};
pub use tree_view::path_history::{ChangeCause, PathChangeEvent, path_changes};
pub use tree_view::path_state::{
    FolderEntry, PathDiff, PathState, changed_paths, path_state_at, similar_paths, tree_with_overlay,
};
