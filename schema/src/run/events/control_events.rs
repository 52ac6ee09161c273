//! What reaches a run from outside, how it rests, and how it ends.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::{BlobRef, Content},
    ids::{DecisionHash, RunId, TaskId, TreeHash},
    message::CallId,
    policy::Policy,
};

/// A person tells the run something (`docket tell`). Reaches the model at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// The words.
    pub text: Content,
    /// Who.
    pub by: String,
}

/// Somebody wants the run to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelRequested {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Somebody wants the run to rest at its next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseRequested {
    /// Who.
    pub by: String,
}

/// A pause ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unpaused {
    /// Who.
    pub by: String,
}

/// Another policy is in force from the next decision on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChanged {
    /// The policy, as it was written.
    pub policy: BlobRef,
    /// What it says; in place of those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Policy>,
    /// It takes the place of the task's policy alone, and its worker's stays. Not in logs that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_task: bool,
    /// Who; nobody in logs that lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Limits that only a clock or the coordinator can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Wall time of the run.
    Time,
    /// Tokens.
    Tokens,
    /// Money.
    Money,
    /// What the runs of its batch may use together.
    Batch,
}

/// A limit was reached: told as an event, so that engines need no clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    /// Which.
    pub which: LimitKind,
    /// One line for a person, where the limit is not the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The run rests; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// The decision.
    pub decision: DecisionHash,
}

/// The run cannot go on without a person; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunBlocked {
    /// What is asked.
    pub question: Content,
    /// What led to it.
    pub why: BlockedReason,
    /// Where the provider is only away: how often in a row the run rests for that, from 1.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub outages: u32,
    /// Where policy asks: of which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<BlockedCall>,
    /// The decision.
    pub decision: DecisionHash,
}

/// The call that a blocker is about, and the rule that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedCall {
    /// The call: the next one that waits.
    pub call: CallId,
    /// The rule.
    pub rule: String,
}

/// Who answers a run that rests at an outage, once its time has come.
pub const BY_OUTAGE_TIMER: &str = "docket";

/// What led to a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockedReason {
    /// The model said so.
    Model,
    /// Policy asks a person.
    Policy,
    /// Failures passed a threshold, or one is a person's to mend.
    Escalated,
    /// It waits for a child run.
    Child,
    /// The model's provider takes no request before a person acts: money, key.
    Provider,
    /// What its batch may use is used up.
    Budget,
    /// The work is said to be done and final checks did not run: a person says whether it is taken as it is.
    Unverified,
}

/// A person answered a blocker, or did what it asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockerAnswered {
    /// The answer; empty where there is nothing to tell the model: the run goes on as it stood.
    pub text: Content,
    /// Who.
    pub by: String,
}

/// A child task was submitted on behalf of this run. Its call is open until the child has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delegated {
    /// The call that delegates.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
}

/// A child task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildAnswered {
    /// The call that delegated.
    pub call: CallId,
    /// The child.
    pub child: TaskId,
    /// Its answer, as the model reads it; in short, where the call is open and its result follows.
    pub content: Content,
    /// It failed.
    pub is_error: bool,
    /// The child's last run, where it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Other children have not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// A person changed the workspace (`docket shell`); a `SnapshotTaken` follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceEdited {
    /// Who.
    pub by: String,
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The turn cap.
    TurnLimit,
    /// A limit of time, tokens or money.
    Limit,
    /// The gates still fail after the last correction.
    Gates,
    /// The model cannot be reached, or refuses.
    Model,
    /// The model kept answering with nothing.
    EmptyAnswers,
    /// There is no plan that could be followed, and none is asked for again.
    Plan,
    /// The workspace or the sandbox could not be made.
    Environment,
    /// What was asked for cannot be had as it is configured: no such model, a request that its provider never
    /// takes, a budget that cannot be counted. Another run would end likewise.
    Configuration,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum RunOutcome {
    /// The work is done and its gates passed.
    Succeeded,
    /// It is not.
    Failed {
        /// Why.
        why: FailureKind,
        /// One line for a person.
        message: String,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// Another run of the task took its place.
    Superseded,
}

impl RunOutcome {
    /// The name that people see.
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

/// The run is over. Nothing follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// How.
    pub result: RunOutcome,
    /// The model's last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Content>,
    /// Hash of the final tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeHash>,
    /// It succeeded, and this keeps that from being verified: there are no checks, or some did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<UnverifiedReason>,
    /// The decision; none where the coordinator ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionHash>,
}

/// Why a run that succeeded is unverified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnverifiedReason {
    /// One line for people: `tests did not run: pytest is not there`.
    pub reason: String,
    /// Names of the checks that did not run; none where there are no checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
}

impl UnverifiedReason {
    /// A run whose project has no check.
    #[must_use]
    pub fn without_checks() -> Self {
        Self { reason: "there are no checks".to_owned(), checks: Vec::new() }
    }
}
