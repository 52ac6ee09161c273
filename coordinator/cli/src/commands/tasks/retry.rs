//! `docket retry`.

use docket_schema::api::BulkOperation;

use crate::{
    commands::tasks::bulk::{self, TaskActionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The task begins anew, with a new run; the old ones are kept. `docket resume` goes on with an old one.
A task whose last run stood on an earlier one (rejected, resumed) and failed goes on from there while it waits for
its next try; once it is discarded, `docket resume` does.
A task that was to come after others waits again for those of them that are not completed, whatever
--if-failed says: retry them too. --without-dependencies does not wait.
A task that its model's provider stopped (credit used up, a key that is not good), or faults of workers,
goes on with the run it has. With filters and no --state, discarded tasks are meant.

Examples:
  docket retry 3f9c01ab
  docket retry 3f9c01ab --reason \"the network is back\"
  docket retry --batch todo --state discarded,cancelled --yes
  docket retry --queue nightly --since 12h --yes --reason \"the key is good again\""
)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    action: TaskActionArgs,
    /// Begin whatever the task was to come after; also a task that still waits
    #[arg(long)]
    without_dependencies: bool,
}

/// Puts the task back.
pub(crate) async fn run_retry(cx: CliContext, args: RetryArgs) -> CliResult {
    let act = if args.without_dependencies {
        BulkOperation::RetryWithoutDependencies
    } else {
        BulkOperation::Retry
    };
    bulk::run_action_with_reason(cx, args.action, act).await
}
