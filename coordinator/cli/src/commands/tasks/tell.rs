//! `docket tell`.

use crate::{
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    output::{
        display,
        fail::{Exit, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "The run hears it before its next decision, as words of a person.

Examples:
  docket tell 3f9c01ab \"The tests live in spec/, not in tests/.\"")]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// The words
    #[arg(required = true, num_args = 1.., value_name = "TEXT")]
    text: Vec<String>,
}

/// Tells it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    access.client.tell(run, &args.text.join(" ")).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&serde_json::json!({ "run": run, "told": true }));
    } else {
        display::say(&format!("told; run {} hears it at its next turn", run.short()));
    }
    Ok(Exit::Ok)
}
