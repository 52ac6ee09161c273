//! `docket cancel`.

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
    after_help = "A run that is under way is stopped within its turn; what it did so far can still be looked at.

Examples:
  docket cancel 3f9c01ab
  docket cancel 3f9c01ab --reason \"the test was wrong\""
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    id: String,
    /// Why, for the log
    #[arg(long, default_value = "")]
    reason: String,
}

/// Cancels the task.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    access.client.cancel(task, &args.reason).await?;
    let view = access.client.task(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&crate::ps::Row::of(&view.task));
    } else {
        display::say(&format!("task {} is {}", task.short(), view.task.state));
    }
    Ok(Exit::Ok)
}
