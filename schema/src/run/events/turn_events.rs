//! The work of a turn: models asked, tools and gates run, what they left in the workspace.

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

/// What a model call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    /// The next decision of the agent.
    Decide,
    /// A summary that replaces old history.
    Compact,
    /// A plan.
    Plan,
    /// A judgement of work done.
    Review,
}

/// Intent: a model is about to be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// What it is for.
    pub purpose: CallPurpose,
    /// Who is asked.
    pub model: ModelRef,
    /// In which role; none where the engine has no roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Which attempt at this decision, from 1.
    pub attempt: u32,
    /// BLAKE3 of the canonical decision that asks for it.
    pub decision: DecisionHash,
    /// BLAKE3 of the request's body, without headers.
    pub request: DecisionHash,
    /// Size of the body in bytes.
    pub request_bytes: u64,
    /// Words of the runtime that the request adds for the model: why it is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// Most that the call can cost, in nano-dollars: what a budget reserves.
    #[serde(default)]
    pub worst_case_nusd: u64,
    /// Largest answer that a budget leaves room for; none = the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// The model answered, whole.
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
    /// From the request's first byte to the answer's first, in milliseconds.
    #[serde(default)]
    pub first_byte_ms: u64,
    /// From the request's first byte to the answer's last, in milliseconds.
    #[serde(default)]
    pub total_ms: u64,
}

impl ModelAnswered {
    /// Its texts, in order.
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
    /// One line for a person, with the remedy.
    pub message: String,
    /// How long the driver waits before another attempt (the provider's word, or backoff with
    /// jitter, drawn once and recorded); `None` = another attempt is pointless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// How long the provider said that it wants to be left alone, whether anybody waits for that or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Another attempt is pointless until a person has done something: raised a limit, set a key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_person: bool,
    /// From the request's first byte to the failure, in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub duration_ms: u64,
}

/// What policy says of a call, and which rule said it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum PolicyVerdict {
    /// It is run.
    Allow {
        /// The rule.
        rule: String,
    },
    /// It is refused, and the model is told why.
    Deny {
        /// The rule.
        rule: String,
        /// The reason, for the model.
        reason: String,
    },
    /// A person is asked.
    Ask {
        /// The rule.
        rule: String,
        /// What is asked.
        question: String,
    },
}

/// Intent: a tool is about to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequested {
    /// The call; its arguments stand in the `ModelAnswered` that made it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What recovery may do if no result follows.
    pub class: RecoveryClass,
    /// What policy says.
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
    /// It did what was asked.
    Ok,
    /// It failed, and the model is told how.
    Error,
    /// Policy, or a rule of the tool, refused it; nothing was done.
    Refused,
    /// A crash came between intent and result, and it must not be run again.
    Unknown,
}

/// A tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFinished {
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub status: ToolStatus,
    /// What the model reads.
    pub content: Content,
    /// The whole output where `content` is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// What decisions need.
    #[serde(default)]
    pub facts: ToolFacts,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

impl GateFinished {
    /// Whether nothing was checked: the linter is not installed.
    #[must_use]
    pub fn is_not_installed(&self) -> bool {
        self.facts.lint.iter().any(|seen| seen.status == LintStatus::Missing)
    }

    /// What it came to, in one word or a few: the same wherever people see it.
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

/// The workspace as it is after the results before this event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotTaken {
    /// Paths of the work tree that changed since the snapshot before.
    pub changes: Vec<PathChange>,
    /// Paths under `.git/` that changed: what the model did with git. Not part of the tree hash,
    /// for commits carry clocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_changes: Vec<PathChange>,
    /// Hash of the whole work tree.
    pub tree: TreeHash,
    /// Paths newly left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedPath>,
    /// A part of a snapshot that no append can hold whole: it counts once the part without this mark has
    /// come under the same epoch, and never where that did not come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// Snapshots as they count: parts are kept until the last one has come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SnapshotParts {
    parts: Vec<SnapshotTaken>,
    /// Under which they were written.
    epoch: Epoch,
}

impl SnapshotParts {
    /// Takes the next event; answers all parts of a snapshot with its last, in order, and nothing before.
    /// Parts under another epoch are those of a worker that died before the last one: they never count.
    pub fn push_part(&mut self, epoch: Epoch, event: SnapshotTaken) -> Vec<SnapshotTaken> {
        if self.epoch != epoch {
            self.parts.clear();
        }
        self.epoch = epoch;
        let more = event.more;
        self.parts.push(event);
        if more { Vec::new() } else { std::mem::take(&mut self.parts) }
    }

    /// Whether no snapshot is begun.
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// What is done about a final check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateStep {
    /// It is run.
    #[default]
    Check,
    /// It failed, and what can be mended without a model is.
    Mend,
}

impl GateStep {
    /// Whether it is the check itself.
    pub const fn is_check(&self) -> bool {
        matches!(self, Self::Check)
    }
}

/// Intent: a final check is about to run, or to be mended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRequested {
    /// docket's name of the call.
    pub call: CallId,
    /// The check.
    pub gate: GateSpec,
    /// What is done about it.
    #[serde(default, skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
    /// The decision that asks for it.
    pub decision: DecisionHash,
}

/// A final check was run before the run changed anything: what failed then is not the run's doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaseChecked {
    /// The check.
    pub gate: GateSpec,
    /// As of [`GateFinished::passed`].
    pub passed: bool,
    /// What was counted, and which tests failed.
    #[serde(default)]
    pub facts: ToolFacts,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// It ran for an earlier run on the same tree, and not again for this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl BaseChecked {
    /// What it came to, in a word.
    #[must_use]
    pub const fn outcome_label(&self) -> &'static str {
        check_outcome_label(self.passed, &self.facts)
    }
}

/// What a check came to, in a few words.
const fn check_outcome_label(passed: bool, facts: &ToolFacts) -> &'static str {
    match (passed, &facts.not_run) {
        (true, _) => "passed",
        (false, None) => "failed",
        (false, Some(why)) if why.partly => "failed: a part of it did not run",
        (false, Some(_)) => "did not run",
    }
}

/// A final check, or its mending, ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateFinished {
    /// The call.
    pub call: CallId,
    /// What was done about the check, as its intent says.
    #[serde(default, skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
    /// Exit status 0 within the time limit; for a mending, that it changed something (in logs from before that was
    /// told, that it could be tried).
    pub passed: bool,
    /// What the model reads if it failed.
    pub content: Content,
    /// The whole output where `content` is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// What decisions need.
    #[serde(default)]
    pub facts: ToolFacts,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}
