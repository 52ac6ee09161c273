//! Artifacts: results of a run that somebody reads without its log (E4). What each holds, and what makes it complete.
//!
//! A model gives the words of them, the runtime the figures: which files changed and where comes from the workspace,
//! what tests came to from the checks' own events. Recorded as [`crate::run::Fact::Artifact`], by their names. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::WorkspacePath, event::is_zero, message::CallId, tool::TestCounts};

pub use crate::tool::{FileChangeKind, FileDiff, Hunk, WorkspaceChanges};

/// The names of the four that a run of engine `sop` leaves, in the order in which it makes them.
pub const SOP_ARTIFACTS: [&str; 4] = [PLAN_CARD, DIFF_CARD, TEST_REPORT, REVIEW_REPORT];
/// The name of a [`PlanCard`].
pub const PLAN_CARD: &str = "PlanCard";
/// The name of a [`DiffCard`].
pub const DIFF_CARD: &str = "DiffCard";
/// The name of a [`TestReport`].
pub const TEST_REPORT: &str = "TestReport";
/// The name of a [`ReviewReport`].
pub const REVIEW_REPORT: &str = "ReviewReport";

/// What is going to be done, before any file is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanCard {
    /// What is wrong or wanted, and how it is met.
    pub summary: String,
    /// The steps, in order.
    #[schemars(length(min = 1))]
    pub steps: Vec<String>,
    /// Files that are going to be made or changed; empty where nothing has to change.
    pub files: Vec<WorkspacePath>,
}

/// What was changed, against the tree that the run began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffCard {
    /// The files, in order of their paths.
    pub files: Vec<FileDiff>,
    /// The places, file by file.
    pub hunks: Vec<Hunk>,
    /// Why so: the only part that a model wrote.
    pub rationale: String,
    /// Files and places that are left out, for there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

/// What the tests came to, by the check that ran them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestReport {
    /// The shell line; empty where none was run.
    pub command: String,
    /// What it came to.
    pub status: TestStatus,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The check that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// What was counted, where that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Names of tests that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// Why none was run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What tests came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    /// All passed.
    Passed,
    /// Some failed, or they ran before the run and do not run now.
    Failed,
    /// Only such failed as failed before the run.
    FailedBefore,
    /// None was run, and why is told.
    NotRun,
}

impl TestStatus {
    /// As people read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::FailedBefore => "failed before",
            Self::NotRun => "not run",
        }
    }
}

/// What may go wrong with the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewReport {
    /// What may go wrong, one entry at least: that nothing is seen is an entry that says why.
    #[schemars(length(min = 1))]
    pub risks: Vec<String>,
    /// What is worth doing, now or later.
    pub recommendations: Vec<String>,
    /// What is wrong and must be mended before the run may end; empty = nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_change: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn artifact_rejects_missing_and_unknown_fields() {
        let card = json!({ "summary": "s", "steps": ["a"], "files": ["a.py"] });
        assert!(serde_json::from_value::<PlanCard>(card.clone()).is_ok());
        for field in ["summary", "steps", "files"] {
            let mut less = card.clone();
            less.as_object_mut().expect("an object").remove(field);
            assert!(serde_json::from_value::<PlanCard>(less).is_err(), "{field}");
        }
        let mut more = card;
        more["mood"] = json!("good");
        assert!(serde_json::from_value::<PlanCard>(more).is_err());
        let report = json!({ "command": "", "status": "not_run", "duration_ms": 0, "reason": "words only" });
        let report: TestReport = serde_json::from_value(report).expect("is one");
        assert_eq!((report.status.as_str(), report.call), ("not run", None));
    }
}
