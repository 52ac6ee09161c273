//! `docket resume`.

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
    after_help = "Where later turns exist, or the run has ended, a new run of the same task goes on from there and
shares the history before it; the workspace is restored to what it was at that turn, byte for byte.

Examples:
  docket resume 3f9c01ab
  docket resume 3f9c01ab --turn 7"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// The last turn that is kept [default: the last one that ended]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
}

/// Resumes it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let task = access.client.run(run).await?.task;
    access.client.resume(run, args.turn).await?;
    let view = access.client.task(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&crate::ps::Row::of(&view.task));
    } else {
        let now = view.task.run.map_or_else(String::new, |run| format!("; run {} goes on", run.short()));
        display::say(&format!("task {} is {}{now}", task.short(), view.task.state));
    }
    Ok(Exit::Ok)
}
