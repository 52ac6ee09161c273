//! The files of a run: pinned at submit, made on any machine, captured after each turn, restored, delivered.
//!
//! - [`pin`] turns a commit of a repository into a [`Base`](docket_schema::snapshot::Base) and its blobs.
//! - [`materialize`] makes a workspace of a base; [`Workspace::open`] takes up one that stands already.
//! - [`Workspace::snapshot_paths`] and [`Workspace::snapshot_walk`] say what changed since the last snapshot.
//! - [`restore`] brings a workspace to exactly a recorded tree and proves it.
//! - [`build_result`] makes a patch or a branch of what a run left; `view` compares recorded trees.
//!
//! Called by the driver, by submit and by the reading commands. Invariants: no filter, hook or helper that a
//! repository defines is ever run; the source repository is written by [`ResultCommit::deliver_branch`]
//! alone; no path is followed through a symbolic link; git is never pointed at a workspace's own `.git`,
//! for a model may write there.

mod base;
mod blobs;
mod contents;
mod deliver;
mod git;
mod handles;
mod ignored;
mod index;
mod materialize;
mod merge;
mod restore;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub use base::{PIN_PART_BYTES, PinError, PinNote, PinOptions, Pinned, pin};
pub use blobs::{BlobError, BlobSink, Blobs, MemoryBlobs, PendingBlobs};
pub use contents::{BaseObjects, Contents, ContentsError};
pub use deliver::{DeliverError, ResultCommit, Signature, build_result};
pub use git::GitCallError;
pub use materialize::{MaterializeError, Owner, WorkspaceOptions, cached_base, materialize};
pub use restore::{RestoreError, RestoreTarget, Restored, restore};
pub use snapshot::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, SnapshotDelta, SnapshotError, Workspace};
pub use source::{DirtyTree, Source};
pub use view::{ChangeView, FileDiff, diff_manifests, tree_at};
