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

mod blobs;
mod contents;
pub(crate) mod delivery;
pub(crate) mod disk;
mod materialize;
pub(crate) mod pin;
pub(crate) mod repository;
mod restore;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
mod three_way;
pub(crate) mod tree_view;

pub use blobs::{BlobError, BlobSink, Blobs, MemoryBlobs, PendingBlobs};
pub use contents::{BaseObjects, Contents, ContentsError};
pub use delivery::commit_message::CommitText;
pub use delivery::deliver::{DeliverError, ResultCommit, Signature, build_result};
pub use delivery::delivery_check::{RemoteBranch, check_branch_is_free, look_at_remote_branch};
pub use delivery::onto::{Made, Own, Wanted, Whose};
pub use delivery::patch::{BeyondGit, LinesChanged, TreeDiff, compare_trees};
pub use delivery::push::{PushError, Pushed, Remote};
pub use disk::handles::Owner;
pub use materialize::{MaterializeError, WorkspaceOptions, cached_base, materialize};
pub use pin::base::{PIN_PART_BYTES, PinNote, PinOptions, Pinned, pin};
pub use repository::git::GitCallError;
pub use repository::pin_error::PinError;
pub use repository::source::{DirtyTree, Source};
pub use restore::{PutBack, RestoreTarget, Restored, put_back, restore};
pub(crate) use snapshot::ignored::VENV_FOLDER;
pub use snapshot::open_workspace::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, SnapshotDelta, Workspace};
pub use snapshot::snapshot_error::{RestoreError, SnapshotError};
pub use three_way::{Conflict, Ours, TakenOver, take_over};
pub use tree_view::blame::{BLAME_BYTES_MAX, BlameError, BlamedLine, LineAuthors, blame};
pub use tree_view::checkout::{CheckedOut, CheckoutError, checkout};
pub use tree_view::past::{Child, PathDiff, Standing, changed_paths, nearest_paths, standing_at, tree_of};
pub use tree_view::touches::{Cause, Touch, touches};
pub use tree_view::view::{ChangeView, FileDiff, diff_manifests, tree_at};
