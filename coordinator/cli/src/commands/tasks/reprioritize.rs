//! `docket reprioritize`: changes the priority of tasks.

use docket_schema::{api::BulkOperation, task::PRIORITY_MAX};

use crate::{
    commands::tasks::bulk::{self, TaskSelectionArgs},
    context::CliContext,
    output::error::CliResult,
};

/// Command-line arguments of `docket reprioritize`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A running task continues; the new priority applies from its next lease.

Examples:
  docket reprioritize 3f9c01ab --priority 10
  docket reprioritize --batch todo --title '*urgent*' --priority 50 --dry-run
  docket reprioritize --queue nightly --before 2d --priority 5 --yes")]
pub(crate) struct ReprioritizeArgs {
    #[command(flatten)]
    selection: TaskSelectionArgs,
    /// New priority; higher runs first
    #[arg(long, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    priority: i16,
}

pub(crate) async fn run_reprioritize(cx: CliContext, args: ReprioritizeArgs) -> CliResult {
    bulk::run_action(cx, args.selection, BulkOperation::Reprioritize(args.priority), String::new()).await
}
