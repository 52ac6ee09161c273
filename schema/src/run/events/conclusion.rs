//! Facts that an engine concludes from what was said and done: the plan, how each step ended, the verdict.
//!
//! A fact follows from the log before it; it is recorded nevertheless, because people ask for it. Engine-neutral: what an
//! engine makes of facts is its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::{Content, WorkspacePath},
    ids::{DecisionHash, Turn},
    message::ToolUse,
};

/// An engine concluded something from what is recorded. It decides by that from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// What, in order.
    pub facts: Vec<EngineFact>,
    /// The decision.
    pub decision: DecisionHash,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum EngineFact {
    /// There is a plan; it takes the place of any before.
    Planned {
        /// Its steps, in order; empty where nothing is left to do.
        steps: Vec<PlanStep>,
    },
    /// A structured answer cannot be taken.
    Invalid {
        /// What it was to be: `plan`, `verdict`, an artifact's name.
        what: String,
        /// What is wrong with it, as the model is told.
        problem: String,
    },
    /// The step in hand ended.
    StepEnded {
        /// Which, from 0.
        step: u32,
        /// Whether it did what it was for.
        success: bool,
        /// What it came to.
        output: Content,
    },
    /// A judgement of the work.
    Judged {
        /// What follows.
        verdict: ReviewVerdict,
        /// Why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The plan is dropped, and why: a new one follows.
    PlanDropped {
        /// Why.
        reason: String,
    },
    /// A phase of a fixed procedure begins.
    PhaseBegan {
        /// Its name.
        phase: String,
    },
    /// A result that somebody can read without the log.
    Artifact {
        /// `PlanCard`, `DiffCard` …
        name: String,
        /// What it holds, checked against its schema.
        content: serde_json::Value,
    },
    /// What a role answered, checked against its schema.
    Answered {
        /// The role.
        role: String,
        /// What it answered.
        content: serde_json::Value,
    },
    /// A few words on a file, for whoever changes it next.
    Summarized {
        /// The file.
        path: WorkspacePath,
        /// The words.
        text: String,
    },
    /// Tools that the runtime itself calls, in place of a model: to be run next, in order.
    Calls {
        /// The calls.
        calls: Vec<ToolUse>,
    },
    /// A round of correction begins.
    Correcting {
        /// What is to be corrected.
        reason: String,
    },
    /// A quality gate between two phases was looked at.
    QualityGate {
        /// Its name.
        gate: String,
        /// What it came to.
        verdict: GateVerdict,
        /// By what, in a line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A limit is near: one turn is left, to end the work in.
    LastTurn {
        /// That turn.
        turn: Turn,
        /// Which limit, and where the work stood.
        reason: String,
    },
}

impl EngineFact {
    /// Text that may lie out of line.
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
    /// What is to be done, for whoever does it.
    pub text: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "StepKind::is_free")]
    pub kind: StepKind,
}

/// What a step is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StepKind {
    /// Whatever its words say.
    #[default]
    Free,
    /// One file is made or changed.
    Edit {
        /// The file.
        path: WorkspacePath,
        /// What whoever changes it should know.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hints: String,
    },
    /// A command is run.
    Command {
        /// The shell line.
        command: String,
        /// What is expected of it: `pass`, `fail`, or words; empty = `pass`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        expect: String,
    },
    /// Tests are run.
    Tests {
        /// Which; none = all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// Words for people.
    Message,
}

impl StepKind {
    /// Whether nothing is said of it.
    pub const fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

/// What follows from a judgement of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewVerdict {
    /// The next step.
    Continue,
    /// The goal another way.
    Retry,
    /// From the beginning.
    Replan,
    /// Nothing: the goal is reached.
    Finish,
}

impl ReviewVerdict {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Retry => "retry",
            Self::Replan => "replan",
            Self::Finish => "finish",
        }
    }
}

/// What a quality gate came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// It holds.
    Passed,
    /// It does not: the work goes back.
    Failed,
    /// It does not apply here, for the reason that is told.
    Excused,
    /// What would show it did not run: nothing is known.
    Unverified,
}

impl GateVerdict {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Excused => "excused",
            Self::Unverified => "unverified",
        }
    }
}
