//! Artifacts: results of a run that people read without its log (E4), with their contents and completeness
//! rules.
//!
//! The model supplies the text and the runtime the figures: changed files and places come from the workspace,
//! test results from the checks' events. Recorded by name as [`crate::run::EngineFact::Artifact`]. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::WorkspacePath, event::is_zero, message::CallId, tool::TestCounts};

pub use crate::tool::{FileChangeKind, FileDiff, Hunk, WorkspaceChanges};

/// The names of the four artifacts of a `sop` run, in the order in which it creates them.
pub const SOP_ARTIFACTS: [&str; 4] = [PLAN_CARD, DIFF_CARD, TEST_REPORT, REVIEW_REPORT];
/// The name of a [`PlanCard`].
pub const PLAN_CARD: &str = "PlanCard";
/// The name of a [`DiffCard`].
pub const DIFF_CARD: &str = "DiffCard";
/// The name of a [`TestReport`].
pub const TEST_REPORT: &str = "TestReport";
/// The name of a [`ReviewReport`].
pub const REVIEW_REPORT: &str = "ReviewReport";

/// The plan, made before any file is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanCard {
    /// The problem or goal, and the approach.
    pub summary: String,
    /// The steps, in order.
    #[schemars(length(min = 1))]
    pub steps: Vec<String>,
    /// Files that will be created or changed; empty if no change is needed.
    pub files: Vec<WorkspacePath>,
}

/// The changes relative to the tree the run started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffCard {
    /// The files, ordered by path.
    pub files: Vec<FileDiff>,
    /// The hunks, file by file.
    pub hunks: Vec<Hunk>,
    /// The reason for the change: the only part written by a model.
    pub rationale: String,
    /// Number of files and hunks that are omitted because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

/// Test results, from the check that ran the tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TestReport {
    /// The shell command; empty if no tests were run.
    pub command: String,
    /// The overall result.
    pub status: TestStatus,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// The check that the result comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The counts, if they could be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Names of tests that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// Why no tests were run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Overall result of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    /// All tests passed.
    Passed,
    /// Some tests failed, or they ran before the run and no longer do.
    Failed,
    /// Only tests that failed before the run failed.
    FailedBefore,
    /// No tests were run; a reason is given.
    NotRun,
}

impl TestStatus {
    /// Returns the status as people read it.
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

/// A review of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewReport {
    /// Possible problems with the change. At least one entry: if there are none, the entry explains why.
    #[schemars(length(min = 1))]
    pub risks: Vec<String>,
    /// Recommendations for now or later.
    pub recommendations: Vec<String>,
    /// Problems that must be fixed before the run may end; may be empty.
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
