//! `docket tell`: sends a message to a running run.

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

/// Command-line arguments of `docket tell`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The run's model reads the message before its next decision, as coming from a person.

Examples:
  docket tell 3f9c01ab \"The tests live in spec/, not in tests/.\"")]
pub(crate) struct TellArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Message text
    #[arg(required = true, num_args = 1.., value_name = "TEXT")]
    text: Vec<String>,
}

pub(crate) async fn run_tell(cx: CliContext, args: TellArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    access.client.send_message(run, &args.text.join(" ")).await?;
    access.close().await?;
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "run": run, "told": true }));
    } else {
        display::print_line(&format!("message sent; run {} reads it at its next turn", run.short()));
    }
    Ok(ExitKind::Ok)
}
