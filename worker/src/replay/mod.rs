//! Looking back: what a run decided, derived again from its log alone; what a model was sent; and what its tools
//! do when they are run again, beside the log and beside every workspace of a run. Nothing is recorded.

mod divergence;
mod proofs;
mod request;
mod rerun;
mod verify;
#[cfg(test)]
mod verify_tests;
mod walk;

pub use divergence::{Difference, Divergence};
pub use request::{Rebuilt, rebuild};
pub use rerun::{
    CallRerun, Gates, Ran, RerunError, RerunOptions, RerunTotals, Rerunning, TreeRerun, TurnRerun,
};
pub use verify::{Verified, VerifyError, verify};
pub use walk::rerun;
