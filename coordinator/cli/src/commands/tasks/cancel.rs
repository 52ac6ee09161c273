//! `docket cancel`: cancels tasks.

use docket_schema::api::BulkOperation;

use crate::{
    commands::tasks::bulk::{self, TaskActionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Command-line arguments of `docket cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A running run is stopped within its turn. What it did so far can still be inspected.

Examples:
  docket cancel 3f9c01ab
  docket cancel 3f9c01ab --reason \"the test was wrong\"
  docket cancel --batch todo --state available,scheduled --dry-run")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    action: TaskActionArgs,
}

pub(crate) async fn run_cancel(cx: CliContext, args: CancelArgs) -> CliResult {
    bulk::run_action_with_reason(cx, args.action, BulkOperation::Cancel).await
}
