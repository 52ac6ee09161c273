//! What the stepper does beyond looking, once it was confirmed: fork and resume, as the commands of those
//! names do.

use docket_schema::ids::RunId;
use docket_worker::client::Client;

use super::model::Act;
use crate::{
    commands::runs::fork::Change,
    connect::access::{Access, Need},
    context::Context,
    output::fail::{Exit, Failure, Outcome},
};

/// What it is called.
pub(super) const fn name(act: Act) -> &'static str {
    match act {
        Act::Fork(_) => "fork",
        Act::Resume(_) => "resume",
    }
}

/// Does it; what came of it, in a line.
pub(super) async fn perform(cx: &Context, run: RunId, act: Act) -> Outcome<String> {
    // The stepper itself only looks, and may share the home with others; who changes something owns it
    // while that lasts.
    let access = Access::open(cx, Need::Write).await?;
    let done = go(cx, &access.client, run, act).await;
    let hint = if access.is_alone() { " (`docket up` starts workers)" } else { "" };
    access.close().await?;
    done.map(|new| {
        let new = new.short();
        format!("run {new} goes on after turn {}; `docket step {new}` shows it{hint}", act.turn())
    })
}

/// The run that goes on.
async fn go(cx: &Context, client: &Client, run: RunId, act: Act) -> Outcome<RunId> {
    let turn = Some(act.turn().0);
    match act {
        Act::Fork(_) => {
            let request = Change::default().check(cx)?.request(client, turn, 1).await?;
            let made = client.fork(run, &request).await?;
            let first = made.siblings.first().map(|sibling| sibling.run);
            first.ok_or_else(|| Failure::new(Exit::Failed, "the coordinator made no fork"))
        }
        Act::Resume(_) => Ok(client.resume(run, turn).await?.run),
    }
}
