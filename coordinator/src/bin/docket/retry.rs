//! `docket retry`.

use docket_schema::wire::BulkAct;

use crate::{
    act::{self, ActArgs},
    context::Context,
    fail::Outcome,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The task begins anew, with a new run; the old ones are kept. `docket resume` goes on with an old one.
A task that its model's provider stopped (credit used up, a key that is not good) goes on with the run
it has. With filters and no --state, discarded tasks are meant.

Examples:
  docket retry 3f9c01ab
  docket retry 3f9c01ab --reason \"the network is back\"
  docket retry --queue nightly --since 12h --yes --reason \"the key is good again\""
)]
pub(crate) struct Args {
    #[command(flatten)]
    act: ActArgs,
}

/// Puts the task back.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run_with_reason(cx, args.act, BulkAct::Retry).await
}
