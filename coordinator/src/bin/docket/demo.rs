//! `docket demo`: placeholder.

use crate::{context::Context, fail::{Exit, Failure, Outcome}};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep its state in the home, for `docket ps`, `replay`, `verify` and the rest
    #[arg(long)]
    keep: bool,
}

/// Shows.
pub(crate) async fn run(_: Context, _: Args) -> Outcome {
    Err(Failure::new(Exit::Failed, "this build has no demo yet"))
}
