//! Looking back: what a run decided, derived again from its log alone; what a model was sent; and what its tools
//! do when they are run again, beside the log and beside every workspace of a run. Nothing is recorded.

mod divergence;
mod rebuilt_request;
mod request_proofs;
mod rerun;
mod rerun_walk;
mod verify;
#[cfg(test)]
mod verify_tests;

pub use divergence::{Divergence, FieldDifference};
pub use rebuilt_request::{RebuiltRequest, rebuild_request};
pub use rerun::{
    CallRerun, CallRerunStatus, GateRerun, RerunError, RerunOptions, RerunProgress, RerunTotals, TreeRerun,
    TurnRerun,
};
pub use rerun_walk::rerun_calls;
pub use verify::{VerifyError, VerifySummary, verify};
