//! `docket cancel`.

use crate::{
    act::{self, Act, ActArgs},
    context::Context,
    fail::Outcome,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run that is under way is stopped within its turn; what it did so far can still be looked at.

Examples:
  docket cancel 3f9c01ab
  docket cancel 3f9c01ab --reason \"the test was wrong\""
)]
pub(crate) struct Args {
    #[command(flatten)]
    act: ActArgs,
}

/// Cancels the task.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run(cx, args.act, Act::Cancel).await
}
