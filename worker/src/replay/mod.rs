//! Replay of recorded runs: verifies decisions against the log, rebuilds model requests, and reruns tools outside the
//! log and outside every workspace of a run. Nothing is recorded.

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
