//! Quality gates between the phases of a fixed procedure, and the checks they are based on. Pure.

use super::check_verdict::CheckVerdict;
use crate::run::events::conclusion::GateVerdict;
use crate::{
    content::Content,
    message::CallId,
    tool::{NotRun, TestCounts},
};

/// A check of the last round, as recorded in its event.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCheck {
    /// The call.
    pub call: CallId,
    /// The check's name.
    pub name: String,
    /// The shell command.
    pub command: String,
    /// The verdict about the run.
    pub verdict: CheckVerdict,
    /// Why it did not run, or not completely.
    pub not_run: Option<NotRun>,
    /// Its output.
    pub content: Content,
    /// The test counts.
    pub tests: Option<TestCounts>,
    /// Names of failed tests.
    pub failing: Vec<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// State of a quality gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QualityGate {
    /// The last verdict.
    pub verdict: GateVerdict,
    /// The reason for the verdict.
    pub reason: String,
    /// How many times it failed.
    pub failed: u32,
    /// How many of these were before a person's last message: they do not count toward the limit.
    pub forgiven: u32,
}

impl QualityGate {
    /// Returns the number of failures that count toward the limit.
    pub const fn counted_failures(&self) -> u32 {
        self.failed.saturating_sub(self.forgiven)
    }
}
