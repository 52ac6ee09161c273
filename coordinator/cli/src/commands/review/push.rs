//! `docket push`: pushes a run's changes as a branch to the repository's remote.

use crate::{
    commands::review::apply::ResultArgs,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    delivery::{self, DeliveryRequest},
    output::error::{CliResult, ExitKind},
};

/// Command-line arguments of `docket push`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Creates the branch in the repository, as `docket apply` does, and pushes it from there: run this
on the machine that has the repository. Keys and credential helpers are those of your own git; of
the repository's settings only the remote's address is used, and its hooks do not run. docket
never force-pushes: a remote branch with other work is left alone. An interrupted push is safe to
repeat.

Examples:
  docket push 3f9c01ab
  docket push 3f9c01ab --remote fork --branch fix/rounding"
)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    result: ResultArgs,
    /// Remote [default: `delivery.remote` of docket.toml, origin]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,
}

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
