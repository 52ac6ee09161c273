//! `docket reprioritize`.

use docket_schema::{task::PRIORITY_MAX, wire::BulkAct};

use crate::{
    commands::tasks::act::{self, MeantArgs},
    context::Context,
    output::fail::Outcome,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "A task that runs goes on; the priority is that of its next lease.

Examples:
  docket reprioritize 3f9c01ab --priority 10
  docket reprioritize --batch todo --title '*urgent*' --priority 50 --dry-run
  docket reprioritize --queue nightly --before 2d --priority 5 --yes")]
pub(crate) struct Args {
    #[command(flatten)]
    meant: MeantArgs,
    /// The priority; higher goes first
    #[arg(long, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    priority: i16,
}

/// Changes priorities.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    act::run(cx, args.meant, BulkAct::Reprioritize(args.priority), String::new()).await
}
