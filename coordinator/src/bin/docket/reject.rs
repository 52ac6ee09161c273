//! `docket reject`: a person does not take a result; a new run goes on from it and is told why.

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, Outcome},
    resolve, resume,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A new run of the same task goes on from the last turn, with all that was done so far, and reads the comment
before it decides anything. What it comes to is delivered on top of what was delivered before.

Examples:
  docket reject 3f9c01ab --comment \"The flag is named --iso, and the README says nothing of it.\""
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// What is wrong, for the model
    #[arg(long, value_name = "TEXT")]
    comment: String,
}

/// Rejects it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let made = access.client.reject(run, &args.comment).await?;
    if cx.json() {
        display::say_json(&crate::ps::Row::of(&access.client.task(made.task).await?.task));
    } else {
        resume::say(&cx, &made);
    }
    if access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(Exit::Ok)
}
