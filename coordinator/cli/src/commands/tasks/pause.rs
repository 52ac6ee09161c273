//! `docket pause` and `docket unpause`: pause and resume tasks.

use docket_schema::api::BulkOperation;

use crate::{
    commands::tasks::bulk::{self, TaskSelectionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Command-line arguments of `docket pause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A running run finishes its turn first; then its process exits and its slot is free for another
task. A task that waits for a worker or a scheduled time is held. Nothing is lost or counted as a
failure: after `docket unpause` the same run continues with its next turn. A run that ends before
its turn is over is not paused. A paused task can be cancelled.

Examples:
  docket pause 3f9c01ab
  docket pause 3f9c01ab && docket follow 3f9c01ab
  docket pause --queue nightly --yes"
)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
}

/// Command-line arguments of `docket unpause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The next free worker continues the run in the same workspace. If the run has not paused yet, this
withdraws the request.

Examples:
  docket unpause 3f9c01ab
  docket unpause --queue nightly --yes"
)]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
}

pub(crate) async fn run_pause(cx: CliContext, args: PauseArgs) -> CliResult {
    bulk::run_action(cx, args.selection, BulkOperation::Pause, String::new()).await
}

pub(crate) async fn run_unpause(cx: CliContext, args: UnpauseArgs) -> CliResult {
    bulk::run_action(cx, args.selection, BulkOperation::Unpause, String::new()).await
}
