//! `docket retry`: starts tasks again.

use docket_schema::api::BulkOperation;

use crate::{
    commands::tasks::bulk::{self, TaskActionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Command-line arguments of `docket retry`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The task starts from the beginning with a new run; the old runs are kept. To continue an old run,
use `docket resume`. If the task's last run continued an earlier one (after a rejection or a
resume) and failed, a retry of a task that still waits for its next try continues from there; once
the task is discarded, use `docket resume`. A task with dependencies waits again for those that
are not completed, whatever --if-failed says: retry them too, or use --without-dependencies. A
task that was stopped by its model's provider (credit used up, an invalid key) or by worker faults
continues its existing run. Filters without --state match discarded tasks.

Examples:
  docket retry 3f9c01ab
  docket retry 3f9c01ab --reason \"the network is back\"
  docket retry --batch todo --state discarded,cancelled --yes
  docket retry --queue nightly --since 12h --yes --reason \"the key is good again\""
)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    action: TaskActionArgs,
    /// Start without waiting for dependencies; also for a task that still waits
    #[arg(long)]
    without_dependencies: bool,
}

pub(crate) async fn run_retry(cx: CliContext, args: RetryArgs) -> CliResult {
    let act = if args.without_dependencies {
        BulkOperation::RetryWithoutDependencies
    } else {
        BulkOperation::Retry
    };
    bulk::run_action_with_reason(cx, args.action, act).await
}
