//! Quality gates between the phases of a fixed procedure, and the checks that they are judged by. Pure.

use super::check_verdict::CheckVerdict;
use crate::run::events::conclusion::GateVerdict;
use crate::{
    content::Content,
    message::CallId,
    tool::{NotRun, TestCounts},
};

/// A check of the last round, as its event tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCheck {
    /// The call.
    pub call: CallId,
    /// Its name.
    pub name: String,
    /// The shell line.
    pub command: String,
    /// What it says of the run.
    pub verdict: CheckVerdict,
    /// Why it did not run, or not all of it.
    pub not_run: Option<NotRun>,
    /// What it said.
    pub content: Content,
    /// What was counted.
    pub tests: Option<TestCounts>,
    /// Names of what failed.
    pub failing: Vec<String>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// How a quality gate stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QualityGate {
    /// What it came to when it was looked at last.
    pub verdict: GateVerdict,
    /// By what.
    pub reason: String,
    /// How often it failed.
    pub failed: u32,
    /// Of these, the times before a person spoke last: they count for no limit.
    pub forgiven: u32,
}

impl QualityGate {
    /// How often it failed, as far as that counts for its limit.
    pub const fn counted_failures(&self) -> u32 {
        self.failed.saturating_sub(self.forgiven)
    }
}
