//! The tree a child starts from: encoded as a blob by its parent, restored into the child's workspace.

use docket_schema::{
    content::BlobRef,
    run::{Overlay, RunState, SnapshotTaken},
    snapshot::PathChange,
    task::DelegatedBy,
};

use crate::run::{
    errors::{executor_error::RunExecutorError, start_error::StartError},
    log::{blob_cache::BlobCache, pending_append::split_snapshot},
};
use crate::{
    bootstrap::RunBootstrap,
    workspace::{BlobReader as _, PendingBlobs, RestoreTarget, SnapshotDelta, Workspace, restore},
};

/// Snapshot parts a child may start from. They share one append with its `RunStarted`.
const START_PARTS_MAX: usize = 48;

/// Encodes the difference between the run's tree and its base for a child; `None` if there is none.
pub(in crate::run) fn encode_start_tree(state: &RunState) -> Result<Option<Vec<u8>>, String> {
    let changes = |overlay: &Overlay| -> Vec<PathChange> {
        overlay.iter().map(|(path, entry)| PathChange { path: path.clone(), entry: *entry }).collect()
    };
    let (changes, git_changes) = (changes(&state.overlay), changes(&state.git_overlay));
    let Some(tree) = state.tree.filter(|_| !changes.is_empty() || !git_changes.is_empty()) else {
        return Ok(None);
    };
    let (left_out, blobs) = (Vec::new(), PendingBlobs::default());
    let (parts, _) =
        split_snapshot(SnapshotDelta { changes, git_changes, tree, left_out, blobs, files_read: 0 });
    if parts.len() > START_PARTS_MAX {
        return Err(
            "the workspace differs from its base in more paths than a child can start from".to_owned()
        );
    }
    Ok(Some(serde_json::to_vec(&parts).expect("plain data with string keys")))
}

/// Loads the snapshot parts a child starts from.
pub(in crate::run) async fn load_start_parts(
    material: &BlobCache,
    start: &BlobRef,
) -> Result<Vec<SnapshotTaken>, RunExecutorError> {
    let bytes = material.get(start).await?;
    serde_json::from_slice(&bytes).map_err(RunExecutorError::StartTree)
}

/// Returns the overlays that the snapshots put over the work tree and over `.git`.
pub(in crate::run) fn overlays_from_parts(parts: &[SnapshotTaken]) -> (Overlay, Overlay) {
    let laid = |changes: fn(&SnapshotTaken) -> &Vec<PathChange>| {
        parts.iter().flat_map(changes).map(|change| (change.path.clone(), change.entry)).collect()
    };
    (laid(|part| &part.changes), laid(|part| &part.git_changes))
}

/// Restores the parent's tree into a child's workspace and returns the snapshot to record in the child's log.
pub(in crate::run) async fn restore_start_tree(
    bootstrap: &RunBootstrap,
    workspace: &mut Workspace,
    material: &BlobCache,
) -> Result<Vec<SnapshotTaken>, StartError> {
    let Some(DelegatedBy { start: Some(start), tree, .. }) = &bootstrap.lease.delegated_by else {
        return Ok(Vec::new());
    };
    let parts = load_start_parts(material, start)
        .await
        .map_err(|error| StartError::from_environment_error(&error))?;
    let (overlay, git_overlay) = overlays_from_parts(&parts);
    let target = RestoreTarget { overlay: &overlay, git_overlay: &git_overlay, left_out: &[], tree: *tree };
    restore(workspace, &target, material)
        .await
        .map_err(|error| StartError::from_environment_error(&error))?;
    Ok(parts)
}
