//! `docket cancel`.

use docket_schema::wire::BulkAct;

use crate::{
    commands::tasks::act::{self, ActArgs},
    context::Context,
    output::fail::Outcome,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run that is under way is stopped within its turn; what it did so far can still be looked at.

Examples:
  docket cancel 3f9c01ab
  docket cancel 3f9c01ab --reason \"the test was wrong\"
  docket cancel --batch todo --state available,scheduled --dry-run"
)]
pub(crate) struct Args {
    #[command(flatten)]
    act: ActArgs,
}

/// Cancels the task.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run_with_reason(cx, args.act, BulkAct::Cancel).await
}
