//! The workspace of a run on this machine: creating it, and restoring it to the end of a log.

use docket_sandbox::workspace_owner;
use std::path::Path;

use cap_std::fs::Dir;
use docket_schema::{ids::TreeHash, run::RunState, snapshot::OmittedPath};

use crate::run::errors::start_error::StartError;
use crate::workspace::{
    self, BlobReader, FileOwner, RestoreReport, RestoreTarget, Workspace, WorkspaceOptions,
};

/// Returns the options for workspaces on this machine. `cache` is the folder for packs of bases.
pub(in crate::run) fn workspace_options(cache: &Path) -> WorkspaceOptions {
    let mut options = WorkspaceOptions::new(cache.to_owned());
    options.owner = workspace_owner().map(|(uid, gid)| FileOwner { uid, gid });
    options
}

/// Opens the workspace folder as its tools see it.
pub(in crate::run) fn open_root(workspace: &Workspace) -> Result<Dir, StartError> {
    Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority())
        .map_err(|error| StartError::from_environment_error(&error))
}

/// Restores the workspace to the end of the log that `state` was folded from, and checks the tree hash.
pub(in crate::run) async fn restore_from_state(
    workspace: &mut Workspace,
    state: &RunState,
    blobs: &impl BlobReader,
) -> Result<(RestoreReport, TreeHash), StartError> {
    let left_out: Vec<OmittedPath> =
        state.left_out.iter().map(|(path, why)| OmittedPath { path: path.clone(), why: *why }).collect();
    let Some(tree) = state.tree else {
        return Err(StartError::Environment("the run's log contains no tree to restore".to_owned()));
    };
    let target =
        RestoreTarget { overlay: &state.overlay, git_overlay: &state.git_overlay, left_out: &left_out, tree };
    let done = workspace::restore(workspace, &target, blobs).await;
    Ok((done.map_err(|error| StartError::from_environment_error(&error))?, tree))
}
