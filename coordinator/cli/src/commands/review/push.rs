//! `docket push`: what a run changed, as a branch of its repository's remote.

use crate::{
    commands::review::apply::ResultArgs,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    delivery::{self, DeliveryRequest},
    output::error::{CliResult, ExitKind},
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Makes the branch in the repository, as `docket apply` does, and pushes it from there: run it on the machine
that has the repository. Keys and credential helpers are your own git's; of the repository's settings only
the remote's address is used, and its hooks do not run. Nothing is ever forced: a remote branch that holds
other work stays. A push that was broken off is safe to repeat.

Examples:
  docket push 3f9c01ab
  docket push 3f9c01ab --remote fork --branch fix/rounding"
)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    result: ResultArgs,
    /// The remote [default: `delivery.remote` of docket.toml, origin]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,
}

/// Pushes it.
pub(crate) async fn run_push(cx: CliContext, args: PushArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let found = args.result.find(&access).await?;
    let remote = args.remote.unwrap_or_else(|| cx.config.delivery.remote.clone());
    let ask = DeliveryRequest { push: Some(&remote), ..args.result.delivery_request(&found) };
    let done = delivery::deliver_or_wait(&cx, &access.client, &ask).await?;
    access.close().await?;
    delivery::print_delivery(&cx, &ask, &done);
    Ok(ExitKind::Ok)
}
