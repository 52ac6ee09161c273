//! `docket why`: what keeps a task from running.

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, Outcome},
    resolve,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One line, and what helps: a paused or full queue, a concurrency key that another task holds, tasks it waits
for, a worker that is not there or has no room. With --json the reason is a word of its own (`kind`).

Examples:
  docket why 3f9c01ab
  docket ps --state available --json | jq -r .id | xargs -n 1 docket why"
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    id: String,
}

/// Says it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    let why = access.client.why(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&why);
    } else {
        display::say(&display::line(&format!("task {} is {}: {}", task.short(), why.state, why.text)));
    }
    Ok(Exit::Ok)
}
