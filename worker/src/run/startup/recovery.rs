//! Recovers a run that another process began: restores its workspace from the last snapshot, and records that.

use docket_schema::{
    content::WorkspacePath,
    run::{RunRecovered, SandboxLayers, SetupFinished},
    snapshot::OmissionReason,
};

use crate::run::{
    environment::run_workspace::restore_from_state,
    errors::start_error::StartError,
    log::{blob_cache::BlobCache, journal::Journal, pending_append::PendingAppend},
    tool_calls::execution::calls_unknown_after_crash,
};
use crate::{bootstrap::RunBootstrap, workspace::Workspace};

/// Restores the workspace. `setup` holds the results of the setup commands that ran again before it.
pub(in crate::run) async fn recover_workspace(
    bootstrap: &RunBootstrap,
    journal: &mut Journal,
    workspace: &mut Workspace,
    material: &BlobCache,
    sandbox: SandboxLayers,
    setup: Vec<SetupFinished>,
) -> Result<(), StartError> {
    let state = journal.state();
    let (restored, tree) = restore_from_state(workspace, state, material).await?;
    let missing: Vec<WorkspacePath> = restored
        .missing
        .into_iter()
        .filter(|left| left.why == OmissionReason::Ignored)
        .map(|left| left.path)
        .collect();
    let turn = state.turn;
    let unknown = calls_unknown_after_crash(state);
    let mut out = PendingAppend::default();
    out.push(turn, RunRecovered { worker: bootstrap.incarnation, sandbox, tree, unknown, missing });
    setup.into_iter().for_each(|done| out.push(turn, done));
    journal.append_results(&out).await?;
    Ok(())
}
