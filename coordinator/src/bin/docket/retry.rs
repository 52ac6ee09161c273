//! `docket retry`.

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
    after_help = "The task begins anew, with a new run; the old ones are kept. `docket resume` goes on with an old one.

Examples:
  docket retry 3f9c01ab
  docket retry 3f9c01ab --reason \"the network is back\""
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    id: String,
    /// Why, for the log
    #[arg(long, default_value = "")]
    reason: String,
}

/// Puts the task back.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    access.client.retry(task, &args.reason).await?;
    let view = access.client.task(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&crate::ps::Row::of(&view.task));
    } else {
        display::say(&format!("task {} is {}", task.short(), view.task.state));
    }
    Ok(Exit::Ok)
}
