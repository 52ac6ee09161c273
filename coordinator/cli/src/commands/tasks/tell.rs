//! `docket tell`.

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "The run hears it before its next decision, as words of a person.

Examples:
  docket tell 3f9c01ab \"The tests live in spec/, not in tests/.\"")]
pub(crate) struct TellArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// The words
    #[arg(required = true, num_args = 1.., value_name = "TEXT")]
    text: Vec<String>,
}

/// Tells it.
pub(crate) async fn run_tell(cx: CliContext, args: TellArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    access.client.send_message(run, &args.text.join(" ")).await?;
    access.close().await?;
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "run": run, "told": true }));
    } else {
        display::print_line(&format!("told; run {} hears it at its next turn", run.short()));
    }
    Ok(ExitKind::Ok)
}
