//! Engine facts: what an engine concludes from the conversation and the results, such as the plan, the
//! outcome of each step, the verdict.
//!
//! A fact follows from the log before it, but is recorded because people query it. Independent of the engine:
//! each engine interprets the facts itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::{Content, WorkspacePath},
    ids::{DecisionHash, Turn},
    message::ToolUse,
};

/// An engine recorded conclusions, which its later decisions are based on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// The facts, in order.
    pub facts: Vec<EngineFact>,
    /// The decision.
    pub decision: DecisionHash,
}

/// A fact. See the module documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum EngineFact {
    /// A plan was made; it replaces any earlier plan.
    Planned {
        /// The steps in order; empty if nothing is left to do.
        steps: Vec<PlanStep>,
    },
    /// A structured reply was rejected.
    Invalid {
        /// The expected content: `plan`, `verdict`, an artifact's name.
        what: String,
        /// The problem, as reported to the model.
        problem: String,
    },
    /// The current step ended.
    StepEnded {
        /// The step's index, starting at 0.
        step: u32,
        /// Whether it succeeded.
        success: bool,
        /// Its result.
        output: Content,
    },
    /// The work was reviewed.
    Judged {
        /// The verdict.
        verdict: ReviewVerdict,
        /// The reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The plan was dropped; a new one follows.
    PlanDropped {
        /// The reason.
        reason: String,
    },
    /// A phase of a fixed procedure began.
    PhaseBegan {
        /// The phase's name.
        phase: String,
    },
    /// A result that people can read without the log.
    Artifact {
        /// `PlanCard`, `DiffCard` …
        name: String,
        /// The content, validated against its schema.
        content: serde_json::Value,
    },
    /// A role's reply.
    Answered {
        /// The role.
        role: String,
        /// The reply, validated against its schema.
        content: serde_json::Value,
    },
    /// A short summary of a file for the model that changes it next.
    Summarized {
        /// The file.
        path: WorkspacePath,
        /// The summary.
        text: String,
    },
    /// Tool calls made by the runtime instead of a model, to be run next, in order.
    Calls {
        /// The calls.
        calls: Vec<ToolUse>,
    },
    /// A round of correction began.
    Correcting {
        /// The problem to correct.
        reason: String,
    },
    /// A quality gate between two phases was evaluated.
    QualityGate {
        /// The gate's name.
        gate: String,
        /// The verdict.
        verdict: GateVerdict,
        /// The reason, in one line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A limit is near: one turn is left to finish the work.
    LastTurn {
        /// That turn.
        turn: Turn,
        /// The limit, and the state of the work.
        reason: String,
    },
}

impl EngineFact {
    /// Returns the fact's content that may be stored in a blob.
    pub const fn content(&self) -> Option<&Content> {
        match self {
            Self::StepEnded { output, .. } => Some(output),
            Self::Planned { .. }
            | Self::Invalid { .. }
            | Self::Judged { .. }
            | Self::PlanDropped { .. }
            | Self::PhaseBegan { .. }
            | Self::Artifact { .. }
            | Self::Answered { .. }
            | Self::Summarized { .. }
            | Self::Calls { .. }
            | Self::Correcting { .. }
            | Self::QualityGate { .. }
            | Self::LastTurn { .. } => None,
        }
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// The instructions for the model that executes the step.
    pub text: String,
    /// The kind of step.
    #[serde(default, skip_serializing_if = "StepKind::is_free")]
    pub kind: StepKind,
}

/// Kind of a plan step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StepKind {
    /// Described by its text only.
    #[default]
    Free,
    /// Creates or changes one file.
    Edit {
        /// The file.
        path: WorkspacePath,
        /// Hints for the model that makes the change.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hints: String,
    },
    /// Runs a command.
    Command {
        /// The shell command.
        command: String,
        /// The expected result: `pass`, `fail`, or a description; empty means `pass`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        expect: String,
    },
    /// Runs tests.
    Tests {
        /// The tests to run; none means all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// A message to people.
    Message,
}

impl StepKind {
    /// Whether the kind is the default.
    pub const fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

/// What to do after a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// Continue with the next step.
    Continue,
    /// Try another way to reach the goal.
    Retry,
    /// Start over with a new plan.
    Replan,
    /// Finish: the goal is reached.
    Finish,
}

impl ReviewVerdict {
    /// Returns the verdict's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Retry => "retry",
            Self::Replan => "replan",
            Self::Finish => "finish",
        }
    }
}

/// Verdict of a quality gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The gate passed.
    Passed,
    /// The gate failed, and the work goes back.
    Failed,
    /// The gate does not apply, for the given reason.
    Excused,
    /// The check that would decide did not run, so the result is unknown.
    Unverified,
}

impl GateVerdict {
    /// Returns the verdict's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Excused => "excused",
            Self::Unverified => "unverified",
        }
    }
}
