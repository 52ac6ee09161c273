//! Final checks: their verdicts, their results before the run, and the quality gates of a procedure.

pub(in crate::run) mod check_verdict;
pub(in crate::run) mod known_failures;
pub(in crate::run) mod quality_gate;

pub use check_verdict::*;
pub use known_failures::*;
pub use quality_gate::*;
