//! The workspace of a run on this machine: how it is made, and what it was at the end of what a log tells.

use docket_sandbox::workspace_owner;
use std::path::Path;

use cap_std::fs::Dir;
use docket_schema::{ids::TreeHash, run::RunState, snapshot::OmittedPath};

use crate::run::errors::start_error::StartError;
use crate::workspace::{
    self, BlobReader, FileOwner, RestoreReport, RestoreTarget, Workspace, WorkspaceOptions,
};

/// How workspaces are made here. `cache` is the folder for packs of bases.
pub(in crate::run) fn workspace_options(cache: &Path) -> WorkspaceOptions {
    let mut options = WorkspaceOptions::new(cache.to_owned());
    options.owner = workspace_owner().map(|(uid, gid)| FileOwner { uid, gid });
    options
}

/// The folder of a workspace, as its tools see it.
pub(in crate::run) fn open_root(workspace: &Workspace) -> Result<Dir, StartError> {
    Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority())
        .map_err(|error| StartError::from_environment_error(&error))
}

/// Makes the workspace what it was at the end of what `state` was folded from; the tree's hash is checked.
pub(in crate::run) async fn restore_from_state(
    workspace: &mut Workspace,
    state: &RunState,
    blobs: &impl BlobReader,
) -> Result<(RestoreReport, TreeHash), StartError> {
    let left_out: Vec<OmittedPath> =
        state.left_out.iter().map(|(path, why)| OmittedPath { path: path.clone(), why: *why }).collect();
    let Some(tree) = state.tree else {
        return Err(StartError::Environment("the run's log names no tree to restore".to_owned()));
    };
    let target =
        RestoreTarget { overlay: &state.overlay, git_overlay: &state.git_overlay, left_out: &left_out, tree };
    let done = workspace::restore(workspace, &target, blobs).await;
    Ok((done.map_err(|error| StartError::from_environment_error(&error))?, tree))
}
