//! `docket pause` and `docket unpause`.

use docket_schema::api::BulkOperation;

use crate::{
    commands::tasks::bulk::{self, TaskSelectionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Flags of `pause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run that is under way ends its turn first; then its process ends and its slot is free for another task.
A task that waits for a worker, or for its time, is held. Nothing is lost and nothing is counted: after
`docket unpause` the same run goes on where it stood. A run that ends before its turn is over is not
paused; a paused task may be cancelled.

Examples:
  docket pause 3f9c01ab
  docket pause 3f9c01ab && docket follow 3f9c01ab
  docket pause --queue nightly --yes"
)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
}

/// Flags of `unpause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The next free worker goes on with the run, in the workspace as it was. Before the run has come to rest,
this takes the pause back.

Examples:
  docket unpause 3f9c01ab
  docket unpause --queue nightly --yes"
)]
pub(crate) struct UnpauseArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
}

/// Pauses it.
pub(crate) async fn run_pause(cx: CliContext, args: PauseArgs) -> CliResult {
    bulk::run_action(cx, args.selection, BulkOperation::Pause, String::new()).await
}

/// Lets it go on.
pub(crate) async fn run_unpause(cx: CliContext, args: UnpauseArgs) -> CliResult {
    bulk::run_action(cx, args.selection, BulkOperation::Unpause, String::new()).await
}
