//! Events of a turn: model calls, tools and final checks, and the resulting snapshots.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::config::run_config::GateSpec;
use crate::{
    content::{BlobRef, Content},
    ids::{DecisionHash, Epoch, TreeHash},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage},
    snapshot::{OmittedPath, PathChange},
    tool::{LintStatus, RecoveryClass, ToolFacts},
};

/// Purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    /// The next decision of the agent.
    Decide,
    /// A summary that replaces old history.
    Compact,
    /// A plan.
    Plan,
    /// A review of the work.
    Review,
}

/// Intent: a model is about to be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// The purpose.
    pub purpose: CallPurpose,
    /// The model.
    pub model: ModelRef,
    /// The role; none if the engine has no roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Number of the attempt at this decision, starting at 1.
    pub attempt: u32,
    /// BLAKE3 hash of the canonical decision.
    pub decision: DecisionHash,
    /// BLAKE3 hash of the request's body, without headers.
    pub request: DecisionHash,
    /// Size of the body in bytes.
    pub request_bytes: u64,
    /// The runtime's reminder added to the request: why the model is called again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// Maximum cost of the call in nano-dollars, which a budget reserves.
    #[serde(default)]
    pub worst_case_nusd: u64,
    /// Reply limit imposed by a budget; none means the usual limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// The model answered completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelAnswered {
    /// The call.
    pub call: CallId,
    /// Text, reasoning and tool calls, in order.
    pub parts: Vec<MessagePart>,
    /// Why it stopped.
    pub stop: StopReason,
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost in nano-dollars by the pinned prices.
    #[serde(default)]
    pub cost_nusd: u64,
    /// Time from the request's first byte to the reply's first byte, in milliseconds.
    #[serde(default)]
    pub first_byte_ms: u64,
    /// Time from the request's first byte to the reply's last byte, in milliseconds.
    #[serde(default)]
    pub total_ms: u64,
}

impl ModelAnswered {
    /// Returns the answer's texts, in order.
    pub fn answer_texts(&self) -> impl DoubleEndedIterator<Item = &Content> {
        self.parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text),
            MessagePart::Thinking { .. } | MessagePart::ToolUse(_) | MessagePart::ToolResult { .. } => None,
        })
    }
}

/// The model call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// Kind of failure: `rate_limited`, `overloaded`, `cut_stream` …
    pub error: String,
    /// One line for people, with the remedy.
    pub message: String,
    /// How long to wait before another attempt, in milliseconds: given by the provider, or a random backoff
    /// that is recorded once. `None` if another attempt is pointless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// How long the provider asked not to be called, in milliseconds, whether or not the run waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Another attempt is pointless until a person acts: raises a limit, sets a key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
    /// Time from the request's first byte to the failure, in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub duration_ms: u64,
}

/// The policy's verdict on a call, and the rule it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum PolicyVerdict {
    /// The call runs.
    Allow {
        /// The rule.
        rule: String,
    },
    /// The call is refused, and the model gets the reason.
    Deny {
        /// The rule.
        rule: String,
        /// The reason, for the model.
        reason: String,
    },
    /// A person must approve the call.
    Ask {
        /// The rule.
        rule: String,
        /// The question.
        question: String,
    },
}

/// Intent: a tool is about to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequested {
    /// The call; its arguments are in the `ModelAnswered` that made it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What recovery may do if there is no result.
    pub class: RecoveryClass,
    /// The policy's verdict.
    pub policy: PolicyVerdict,
    /// Labels of a parsed command: `network`, `git`, `deletes` …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The decision that asks for it.
    pub decision: DecisionHash,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool succeeded.
    Ok,
    /// The tool failed, and the model gets the error.
    Error,
    /// Policy or a rule of the tool refused the call; nothing was done.
    Refused,
    /// A crash happened between intent and result, and the call must not be repeated.
    Unknown,
}

/// A tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFinished {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub status: ToolStatus,
    /// The result as the model reads it.
    pub content: Content,
    /// The full output if `content` is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// Structured facts that decisions are based on.
    #[serde(default)]
    pub facts: ToolFacts,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

impl GateFinished {
    /// Whether nothing was checked because the linter is not installed.
    #[must_use]
    pub fn is_not_installed(&self) -> bool {
        self.facts.lint.iter().any(|seen| seen.status == LintStatus::Missing)
    }

    /// Returns the outcome in a few words, the same in every view.
    #[must_use]
    pub fn outcome_label(&self) -> &'static str {
        match (self.step.is_check(), self.passed) {
            (true, _) if self.is_not_installed() => "not checked: not installed",
            (true, passed) => check_outcome_label(passed, &self.facts),
            (false, true) => "mended",
            (false, false) => "mended nothing",
        }
    }
}

/// The workspace after the results before this event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotTaken {
    /// Changed paths of the work tree since the previous snapshot.
    pub changes: Vec<PathChange>,
    /// Changed paths under `.git/`: the model's use of git. Not part of the tree hash, because commits
    /// contain timestamps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_changes: Vec<PathChange>,
    /// Hash of the complete work tree.
    pub tree: TreeHash,
    /// Paths newly omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedPath>,
    /// A part of a snapshot that is too large for one append. It takes effect once the part without this mark
    /// is recorded under the same epoch, and never otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// Assembles snapshots from their parts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SnapshotParts {
    parts: Vec<SnapshotTaken>,
    /// The epoch of the parts.
    epoch: Epoch,
}

impl SnapshotParts {
    /// Adds the next event. Returns all parts of a snapshot in order with the last one, and nothing before.
    /// Parts of another epoch were written by a worker that crashed before the last one and are discarded.
    pub fn push_part(&mut self, epoch: Epoch, event: SnapshotTaken) -> Vec<SnapshotTaken> {
        if self.epoch != epoch {
            self.parts.clear();
        }
        self.epoch = epoch;
        let more = event.more;
        self.parts.push(event);
        if more { Vec::new() } else { std::mem::take(&mut self.parts) }
    }

    /// Whether no snapshot is in progress.
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A step of a final check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateStep {
    /// The check runs.
    #[default]
    Check,
    /// The check failed, and its automatic fix runs.
    Mend,
}

impl GateStep {
    /// Whether it is the check itself.
    pub const fn is_check(&self) -> bool {
        matches!(self, Self::Check)
    }
}

/// Intent: a final check or its fix is about to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// The check.
    pub gate: GateSpec,
    /// The step.
    #[serde(default, skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
    /// The decision that asks for it.
    pub decision: DecisionHash,
}

/// A final check ran before the run changed anything: these failures are not caused by the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseChecked {
    /// The check.
    pub gate: GateSpec,
    /// As for [`GateFinished::passed`].
    pub passed: bool,
    /// Test counts, and the names of failed tests.
    #[serde(default)]
    pub facts: ToolFacts,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// The result is from an earlier run on the same tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl BaseChecked {
    /// Returns the outcome in one word.
    #[must_use]
    pub const fn outcome_label(&self) -> &'static str {
        check_outcome_label(self.passed, &self.facts)
    }
}

/// Returns the outcome of a check in a few words.
const fn check_outcome_label(passed: bool, facts: &ToolFacts) -> &'static str {
    match (passed, &facts.not_run) {
        (true, _) => "passed",
        (false, None) => "failed",
        (false, Some(why)) if why.partly => "failed: a part of it did not run",
        (false, Some(_)) => "did not run",
    }
}

/// A final check or its fix ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateFinished {
    /// The call.
    pub call: CallId,
    /// The step, as in the intent.
    #[serde(default, skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
    /// For a check: exit status 0 within the time limit. For a fix: whether it changed something (in older
    /// logs: whether it could be tried).
    pub passed: bool,
    /// What the model reads if it failed.
    pub content: Content,
    /// The full output if `content` is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// Structured facts that decisions are based on.
    #[serde(default)]
    pub facts: ToolFacts,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}
