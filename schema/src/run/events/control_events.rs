//! Events that reach a run from outside, and those that pause or end it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::{BlobRef, Content},
    ids::{DecisionHash, RunId, TaskId, TreeHash},
    message::CallId,
    policy::Policy,
};

/// A person sent a message to the run (`docket tell`). It reaches the model at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// The message.
    pub text: Content,
    /// Who sent it.
    pub by: String,
}

/// A cancellation of the run was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelRequested {
    /// Who requested it.
    pub by: String,
    /// The reason.
    #[serde(default)]
    pub reason: String,
}

/// A pause at the next turn was requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseRequested {
    /// Who requested it.
    pub by: String,
}

/// A pause ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unpaused {
    /// Who ended it.
    pub by: String,
}

/// Another policy is in effect from the next decision on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChanged {
    /// The policy, as written.
    pub policy: BlobRef,
    /// The parsed policy, which replaces the previous ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Policy>,
    /// It replaces only the task's policy and keeps the worker's. Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_task: bool,
    /// Who changed it; empty in older logs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Limits that only a clock or the coordinator can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// The run's working time.
    Time,
    /// Tokens.
    Tokens,
    /// Money.
    Money,
    /// The budget that the runs of its batch share.
    Batch,
}

/// A limit was reached. Recorded as an event, so that engines need no clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    /// The limit.
    pub which: LimitKind,
    /// One line for people, if the limit is not the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The run is paused; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// The decision.
    pub decision: DecisionHash,
}

/// The run cannot continue without a person; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunBlocked {
    /// The question.
    pub question: Content,
    /// The cause.
    pub why: BlockedReason,
    /// For a provider outage: how many times in a row the run has waited for it, starting at 1.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub outages: u32,
    /// For a policy question: the call it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<BlockedCall>,
    /// The decision.
    pub decision: DecisionHash,
}

/// The call that a blocker is about, and the rule that requires approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCall {
    /// The next pending call.
    pub call: CallId,
    /// The rule.
    pub rule: String,
}

/// The author of the answer that ends an outage wait after its time.
pub const BY_OUTAGE_TIMER: &str = "docket";

/// Cause of a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockedReason {
    /// The model reported it.
    Model,
    /// Policy requires approval.
    Policy,
    /// Failures exceeded a threshold, or one can only be fixed by a person.
    Escalated,
    /// It waits for a child run.
    Child,
    /// The model's provider refuses requests until a person acts: money, key.
    Provider,
    /// Its batch budget is used up.
    Budget,
    /// The work is reported done but final checks did not run: a person decides whether to accept it.
    Unverified,
}

/// A person answered a blocker, or resolved its cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerAnswered {
    /// The answer; empty if there is nothing to tell the model and the run simply continues.
    pub text: Content,
    /// Who answered.
    pub by: String,
}

/// A child task was submitted on behalf of this run. Its call remains open until the child has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delegated {
    /// The delegating call.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
}

/// A child task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildAnswered {
    /// The delegating call.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
    /// Its answer as the model reads it; abbreviated if the call is open and its result follows.
    pub content: Content,
    /// Whether the child failed.
    pub is_error: bool,
    /// The child's last run, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whether other children have not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A person changed the workspace (`docket shell`); a `SnapshotTaken` follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceEdited {
    /// Who changed it.
    pub by: String,
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The limit of turns was reached.
    TurnLimit,
    /// A limit of time, tokens or money was reached.
    Limit,
    /// The final checks still fail after the last correction.
    Gates,
    /// The model is unreachable or refuses.
    Model,
    /// The model repeatedly gave empty replies.
    EmptyAnswers,
    /// There is no usable plan, and no other one is requested.
    Plan,
    /// The workspace or the sandbox could not be created.
    Environment,
    /// The configuration cannot work: unknown model, a request that its provider never accepts, a budget that
    /// cannot be measured. Another run would fail the same way.
    Configuration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum RunOutcome {
    /// The work is done and its final checks passed.
    Succeeded,
    /// It failed.
    Failed {
        /// The kind of failure.
        why: FailureKind,
        /// One line for people.
        message: String,
    },
    /// It was cancelled.
    Cancelled,
    /// Another run of the task replaced it.
    Superseded,
}

impl RunOutcome {
    /// Returns the name shown to people.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { message, .. } => write!(f, "failed: {message}"),
            Self::Succeeded | Self::Cancelled | Self::Superseded => f.write_str(self.as_str()),
        }
    }
}

/// The run ended. No event follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// The outcome.
    pub result: RunOutcome,
    /// The model's final message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Content>,
    /// Hash of the final tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeHash>,
    /// Why a successful run is unverified: there are no checks, or some did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<UnverifiedReason>,
    /// The decision; none if the coordinator ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionHash>,
}

/// Why a successful run is unverified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnverifiedReason {
    /// One line for people: `tests did not run: pytest is not there`.
    pub reason: String,
    /// Names of the checks that did not run; empty if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
}

impl UnverifiedReason {
    /// Returns the reason for a project without checks.
    #[must_use]
    pub fn without_checks() -> Self {
        Self { reason: "there are no checks".to_owned(), checks: Vec::new() }
    }
}
