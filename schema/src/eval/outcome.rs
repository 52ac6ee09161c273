//! Actual and expected outcomes of evaluation tasks. Suites, reports and tables share one text form, such as
//! `succeeded` or `failed: turn_limit`.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    ids::{deserialize_from_text, serialize_as_text},
    run::{BlockedReason, FailureKind, RunOutcome, RunStage, RunState},
    task::TaskState,
};

/// What a task of a suite demonstrates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalKind {
    /// A bug, a refactoring, a small feature.
    Core,
    /// A change across several related files: code, tests, documents.
    Integration,
    /// An attempt at something that must be prevented.
    Safety,
    /// A run that cannot succeed: what it leaves behind.
    Recovery,
}

impl EvalKind {
    /// All kinds, in report order.
    pub const ALL: [Self; 4] = [Self::Core, Self::Integration, Self::Safety, Self::Recovery];

    /// Returns the kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Integration => "integration",
            Self::Safety => "safety",
            Self::Recovery => "recovery",
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalOutcome {
    /// The run succeeded and its final checks passed.
    Succeeded,
    /// The run succeeded, but final checks did not run.
    Unverified,
    /// Its run failed.
    Failed(FailureKind),
    /// Its run is waiting.
    Blocked(BlockedReason),
    /// It was cancelled.
    Cancelled,
    /// Its run processes crashed until it was given up.
    Crashed,
    /// It had not ended when the evaluation stopped.
    Unfinished,
}

impl EvalOutcome {
    /// Returns the outcome of a task in this state with this last run; `None` if it had no run.
    pub fn from_task_and_run(task: TaskState, run: Option<&RunState>) -> Self {
        match (task, run.map(|run| &run.stage)) {
            (_, Some(RunStage::Ended(RunOutcome::Succeeded))) => {
                // A project without checks is judged by the suite's checks alone.
                let unverified = run.and_then(|run| run.unverified.as_ref());
                let lacks = unverified.is_some_and(|why| !why.checks.is_empty());
                if lacks { Self::Unverified } else { Self::Succeeded }
            }
            (_, Some(RunStage::Ended(RunOutcome::Failed { why, .. }))) => Self::Failed(*why),
            (TaskState::Cancelled, _) | (_, Some(RunStage::Ended(RunOutcome::Cancelled))) => Self::Cancelled,
            (TaskState::Discarded, _) => Self::Crashed,
            (TaskState::Blocked, Some(RunStage::Blocked)) => {
                let asked = run.and_then(|run| run.blocker.as_ref());
                asked.map_or(Self::Unfinished, |asked| Self::Blocked(asked.why))
            }
            (
                TaskState::Blocked
                | TaskState::Pending
                | TaskState::Scheduled
                | TaskState::Available
                | TaskState::Running
                | TaskState::Retryable
                | TaskState::Completed,
                _,
            ) => Self::Unfinished,
        }
    }
}

/// The expected outcome of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalExpectation {
    /// It succeeds.
    Succeeded,
    /// It fails, for this or for any reason.
    Failed(Option<FailureKind>),
    /// It is blocked, for this or for any reason.
    Blocked(Option<BlockedReason>),
    /// It is cancelled.
    Cancelled,
}

impl EvalExpectation {
    /// Whether the outcome meets the expectation.
    pub fn is_met_by(self, outcome: EvalOutcome) -> bool {
        match (self, outcome) {
            (Self::Succeeded, EvalOutcome::Succeeded) | (Self::Cancelled, EvalOutcome::Cancelled) => true,
            (Self::Failed(wanted), EvalOutcome::Failed(why)) => wanted.is_none_or(|wanted| wanted == why),
            (Self::Blocked(wanted), EvalOutcome::Blocked(why)) => wanted.is_none_or(|wanted| wanted == why),
            (Self::Succeeded | Self::Failed(_) | Self::Blocked(_) | Self::Cancelled, _) => false,
        }
    }
}

/// A text that is not an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an outcome: {must}")]
pub struct ParseOutcomeError {
    text: String,
    must: String,
}

/// Returns serde's name of a reason.
fn serde_name<T: Serialize>(why: T) -> String {
    let json = serde_json::to_value(why);
    json.ok().and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
}

fn parse_reason<T: DeserializeOwned>(text: &str, words: &str) -> Result<T, ParseOutcomeError> {
    let read = serde_json::from_value(serde_json::Value::String(words.to_owned()));
    // serde's error lists the valid names, so they need no second list here.
    read.map_err(|error| ParseOutcomeError { text: text.to_owned(), must: error.to_string() })
}

fn split_reason(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((word, why)) => (word.trim(), Some(why.trim())),
        None => (text.trim(), None),
    }
}

impl FromStr for EvalOutcome {
    type Err = ParseOutcomeError;

    fn from_str(text: &str) -> Result<Self, ParseOutcomeError> {
        match split_reason(text) {
            ("succeeded", None) => Ok(Self::Succeeded),
            ("unverified", None) => Ok(Self::Unverified),
            ("failed", Some(why)) => parse_reason(text, why).map(Self::Failed),
            ("blocked", Some(why)) => parse_reason(text, why).map(Self::Blocked),
            ("cancelled", None) => Ok(Self::Cancelled),
            ("crashed", None) => Ok(Self::Crashed),
            ("unfinished", None) => Ok(Self::Unfinished),
            _ => Err(ParseOutcomeError {
                text: text.to_owned(),
                must:
                    "it is succeeded, unverified, failed: WHY, blocked: WHY, cancelled, crashed or unfinished"
                        .to_owned(),
            }),
        }
    }
}

impl FromStr for EvalExpectation {
    type Err = ParseOutcomeError;

    fn from_str(text: &str) -> Result<Self, ParseOutcomeError> {
        match split_reason(text) {
            ("succeeded", None) => Ok(Self::Succeeded),
            ("failed", why) => why.map(|why| parse_reason(text, why)).transpose().map(Self::Failed),
            ("blocked", why) => why.map(|why| parse_reason(text, why)).transpose().map(Self::Blocked),
            ("cancelled", None) => Ok(Self::Cancelled),
            _ => Err(ParseOutcomeError {
                text: text.to_owned(),
                must: "one may be expected to have succeeded, failed, blocked or cancelled, the second and third with \
                       why, as `failed: turn_limit`"
                    .to_owned(),
            }),
        }
    }
}

impl fmt::Display for EvalOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Unverified => f.write_str("unverified"),
            Self::Failed(why) => write!(f, "failed: {}", serde_name(why)),
            Self::Blocked(why) => write!(f, "blocked: {}", serde_name(why)),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Crashed => f.write_str("crashed"),
            Self::Unfinished => f.write_str("unfinished"),
        }
    }
}

impl fmt::Display for EvalExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Failed(None) => f.write_str("failed"),
            Self::Failed(Some(why)) => write!(f, "failed: {}", serde_name(why)),
            Self::Blocked(None) => f.write_str("blocked"),
            Self::Blocked(Some(why)) => write!(f, "blocked: {}", serde_name(why)),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

macro_rules! as_text {
    ($type:ty, $name:literal, $pattern:literal) => {
        serialize_as_text!($type);
        deserialize_from_text!($type);

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

as_text!(
    EvalOutcome,
    "EvalOutcome",
    "^(succeeded|unverified|cancelled|crashed|unfinished|(failed|blocked): [a-z_]+)$"
);
as_text!(EvalExpectation, "EvalExpectation", "^(succeeded|cancelled|(failed|blocked)(: [a-z_]+)?)$");
