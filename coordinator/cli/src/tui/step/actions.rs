//! Actions of the stepper after confirmation: fork and resume, like the commands of these names.

use docket_schema::ids::RunId;
use docket_worker::client::CoordinatorClient;

use super::state::RunAction;
use crate::{
    commands::runs::fork::ForkChangeArgs,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind},
};

/// The name of an action.
pub(super) const fn action_name(act: RunAction) -> &'static str {
    match act {
        RunAction::Fork(_) => "fork",
        RunAction::Resume(_) => "resume",
    }
}

/// Performs an action and returns its result as one line.
pub(super) async fn perform_action(cx: &CliContext, run: RunId, act: RunAction) -> CliResult<String> {
    // The stepper itself is read-only and may share the home with others; an action owns the home while it
    // runs.
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let done = start_continuation(cx, &access.client, run, act).await;
    let hint = if access.is_local() { " (`docket up` starts workers)" } else { "" };
    access.close().await?;
    done.map(|new| {
        let new = new.short();
        format!("run {new} continues after turn {}; `docket step {new}` shows it{hint}", act.turn())
    })
}

/// Creates the run that continues.
async fn start_continuation(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
    act: RunAction,
) -> CliResult<RunId> {
    let turn = Some(act.turn().0);
    match act {
        RunAction::Fork(_) => {
            let request = ForkChangeArgs::default().check(cx)?.build_request(client, turn, 1).await?;
            let made = client.fork(run, &request).await?;
            let first = made.siblings.first().map(|sibling| sibling.run);
            first.ok_or_else(|| CliError::new(ExitKind::Failed, "the coordinator created no fork"))
        }
        RunAction::Resume(_) => Ok(client.resume(run, turn).await?.run),
    }
}
