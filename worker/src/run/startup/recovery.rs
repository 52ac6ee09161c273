//! A run that another process began: its workspace as the last snapshot has it, and the event that says so.

use docket_schema::{
    content::WorkPath,
    run::{RunRecovered, SandboxLayers, SetupFinished},
    snapshot::LeftOutWhy,
};

use crate::run::{
    environment::run_workspace::restored,
    errors::start_error::StartError,
    log::{journal::Journal, material::Material, outgoing::Outgoing},
    tool_calls::execution::unknown_after_crash,
};
use crate::{bootstrap::Bootstrap, workspace::Workspace};

/// Restores the workspace. `setup` is what setup commands came to that ran again before it.
pub(in crate::run) async fn recover(
    bootstrap: &Bootstrap,
    journal: &mut Journal,
    workspace: &mut Workspace,
    material: &Material,
    sandbox: SandboxLayers,
    setup: Vec<SetupFinished>,
) -> Result<(), StartError> {
    let state = journal.state();
    let (restored, tree) = restored(workspace, state, material).await?;
    let missing: Vec<WorkPath> = restored
        .missing
        .into_iter()
        .filter(|left| left.why == LeftOutWhy::Ignored)
        .map(|left| left.path)
        .collect();
    let turn = state.turn;
    let unknown = unknown_after_crash(state);
    let mut out = Outgoing::default();
    out.push(turn, RunRecovered { worker: bootstrap.incarnation, sandbox, tree, unknown, missing });
    setup.into_iter().for_each(|done| out.push(turn, done));
    journal.append_results(&out).await?;
    Ok(())
}
