//! `docket retry`.

use crate::{
    act::{self, Act, ActArgs},
    context::Context,
    fail::Outcome,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The task begins anew, with a new run; the old ones are kept. `docket resume` goes on with an old one.
A task that its model's provider stopped (credit used up, a key that is not good) goes on with the run
it has.

Examples:
  docket retry 3f9c01ab
  docket retry 3f9c01ab --reason \"the network is back\""
)]
pub(crate) struct Args {
    #[command(flatten)]
    act: ActArgs,
}

/// Puts the task back.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run(cx, args.act, Act::Retry).await
}
