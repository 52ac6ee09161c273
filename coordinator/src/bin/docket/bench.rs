//! `docket bench`: placeholder of the command line; its measurements are another step.

use crate::{context::Context, fail::{Exit, Failure, Outcome}};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Measures.
pub(crate) async fn run(_: Context, _: Args) -> Outcome {
    Err(Failure::new(Exit::Failed, "this build has no bench yet; `docket demo` shows docket at work"))
}
