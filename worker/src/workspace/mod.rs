//! The files of a run: pinned at submit, made on any machine, captured after each turn, restored, delivered.
//!
//! - [`pin`] turns a commit of a repository into a [`Base`](docket_schema::snapshot::Base) and its blobs.
//! - [`materialize`] makes a workspace of a base; [`Workspace::open`] takes up one that stands already.
//! - [`Workspace::snapshot_paths`] and [`Workspace::snapshot_walk`] say what changed since the last snapshot.
//! - [`restore`] brings a workspace to exactly a recorded tree and proves it.
//! - [`build_result`] makes a patch or a branch of what a run left; [`compare_trees`] makes a patch between any
//!   two of its trees; `view` compares recorded trees for the eye.
//! - [`checkout`] hands a recorded tree to a person; [`blame`] says which turn wrote each line of a file.
//!
//! Called by the driver, by submit and by the reading commands. Invariants: no filter, hook or helper that a
//! repository defines is ever run; the source repository is written by [`ResultCommit`] alone; no path is followed through a symbolic link; git is never pointed at a workspace's own `.git`,
//! for a model may write there.

mod base;
mod blame;
mod blobs;
mod checkout;
mod commit_listing;
mod commit_message;
mod contents;
mod deliver;
mod delivery_check;
mod dot_git;
mod file_stat;
mod git;
mod handles;
mod hidden_repository;
mod ignored;
mod index;
mod materialize;
mod meanwhile;
mod merge;
mod onto;
mod open_workspace;
mod past;
mod patch;
mod pin_error;
mod push;
mod reach;
mod restore;
mod snapshot_error;
mod source;
mod submodules;
#[cfg(test)]
mod tests;
mod three_way;
mod touches;
mod view;
mod walk;

pub use base::{PIN_PART_BYTES, PinNote, PinOptions, Pinned, pin};
pub use blame::{BLAME_BYTES_MAX, BlameError, BlamedLine, LineAuthors, blame};
pub use blobs::{BlobError, BlobSink, Blobs, MemoryBlobs, PendingBlobs};
pub use checkout::{CheckedOut, CheckoutError, checkout};
pub use commit_message::CommitText;
pub use contents::{BaseObjects, Contents, ContentsError};
pub use deliver::{DeliverError, ResultCommit, Signature, build_result};
pub use delivery_check::{RemoteBranch, check_branch_is_free, look_at_remote_branch};
pub use git::GitCallError;
pub use handles::Owner;
pub(crate) use ignored::VENV_FOLDER;
pub use materialize::{MaterializeError, WorkspaceOptions, cached_base, materialize};
pub use onto::{Made, Own, Wanted, Whose};
pub use open_workspace::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, SnapshotDelta, Workspace};
pub use past::{Child, PathDiff, Standing, changed_paths, nearest_paths, standing_at, tree_of};
pub use patch::{BeyondGit, LinesChanged, TreeDiff, compare_trees};
pub use pin_error::PinError;
pub use push::{PushError, Pushed, Remote};
pub use restore::{PutBack, RestoreTarget, Restored, put_back, restore};
pub use snapshot_error::{RestoreError, SnapshotError};
pub use source::{DirtyTree, Source};
pub use three_way::{Conflict, Ours, TakenOver, take_over};
pub use touches::{Cause, Touch, touches};
pub use view::{ChangeView, FileDiff, diff_manifests, tree_at};
