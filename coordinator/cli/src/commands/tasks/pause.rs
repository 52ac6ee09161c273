//! `docket pause` and `docket unpause`.

use docket_schema::wire::BulkAct;

use crate::{
    commands::tasks::act::{self, MeantArgs},
    context::Context,
    output::fail::Outcome,
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
pub(crate) struct Args {
    #[command(flatten)]
    meant: MeantArgs,
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
    meant: MeantArgs,
}

/// Pauses it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run(cx, args.meant, BulkAct::Pause, String::new()).await
}

/// Lets it go on.
pub(crate) async fn unpause(cx: Context, args: UnpauseArgs) -> Outcome {
    act::run(cx, args.meant, BulkAct::Unpause, String::new()).await
}
