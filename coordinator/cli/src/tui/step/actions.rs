//! What the stepper does beyond looking, once it was confirmed: fork and resume, as the commands of those
//! names do.

use docket_schema::ids::RunId;
use docket_worker::client::CoordinatorClient;

use super::state::RunAction;
use crate::{
    commands::runs::fork::ForkChangeArgs,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind},
};

/// What it is called.
pub(super) const fn action_name(act: RunAction) -> &'static str {
    match act {
        RunAction::Fork(_) => "fork",
        RunAction::Resume(_) => "resume",
    }
}

/// Does it; what came of it, in a line.
pub(super) async fn perform_action(cx: &CliContext, run: RunId, act: RunAction) -> CliResult<String> {
    // The stepper itself only looks, and may share the home with others; who changes something owns it
    // while that lasts.
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let done = start_continuation(cx, &access.client, run, act).await;
    let hint = if access.is_local() { " (`docket up` starts workers)" } else { "" };
    access.close().await?;
    done.map(|new| {
        let new = new.short();
        format!("run {new} goes on after turn {}; `docket step {new}` shows it{hint}", act.turn())
    })
}

/// The run that goes on.
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
            first.ok_or_else(|| CliError::new(ExitKind::Failed, "the coordinator made no fork"))
        }
        RunAction::Resume(_) => Ok(client.resume(run, turn).await?.run),
    }
}
