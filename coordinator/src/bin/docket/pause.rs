//! `docket pause` and `docket unpause`.

use docket_schema::task::TaskState;

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, Outcome},
    ps, resolve,
};

/// Flags of `pause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run that is under way ends its turn first; then its process ends and its slot is free for another task.
A task that waits for a worker, or for its time, is held. Nothing is lost and nothing is counted: after
`docket unpause` the same run goes on where it stood. A run that ends before its turn is over is not
paused; a paused task may be cancelled.

Examples:
  docket pause 3f9c01ab
  docket pause 3f9c01ab && docket follow 3f9c01ab
  docket ps --json | jq -r 'select(.blocked_why == \"paused\") | .id'"
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    id: String,
}

/// Flags of `unpause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The next free worker goes on with the run, in the workspace as it was. Before the run has come to rest,
this takes the pause back.

Examples:
  docket unpause 3f9c01ab
  docket ps --json | jq -r 'select(.blocked_why == \"paused\") | .id' | xargs -n 1 docket unpause"
)]
pub(crate) struct UnpauseArgs {
    /// A task, or one of its runs
    id: String,
}

/// Pauses it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    let now = access.client.pause(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&ps::Row::of(&now));
    } else {
        display::say(&match (now.state, now.run) {
            (TaskState::Running, Some(run)) => {
                format!("asked; run {} of task {} rests at its next turn", run.short(), task.short())
            }
            (..) => format!("task {} is {}", task.short(), ps::word(&now)),
        });
    }
    Ok(Exit::Ok)
}

/// Lets it go on.
pub(crate) async fn unpause(cx: Context, args: UnpauseArgs) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    let now = access.client.unpause(task).await?;
    if cx.json() {
        display::say_json(&ps::Row::of(&now));
    } else {
        display::say(&format!("task {} is {}", task.short(), ps::word(&now)));
    }
    if access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(Exit::Ok)
}
