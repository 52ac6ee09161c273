//! Calls of a turn, to models, tools and final checks: each intent with its result.

use std::borrow::Cow;

use crate::{
    ids::Seq,
    message::ToolUse,
    run::{
        GateFinished, GateRequested, GateStep, ModelAnswered, ModelFailed, ModelRequested, ToolFinished,
        ToolRequested, ToolStatus,
    },
    tool::TestCounts,
};

/// A model call, possibly without a reply yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Index of the intent among the run's events.
    pub event_index: usize,
    /// Sequence number of the intent in its stream.
    pub seq: Seq,
    /// The intent.
    pub intent: ModelRequested,
    /// The reply, if one is recorded.
    pub reply: Option<ModelReply>,
}

/// The result of a model call.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelReply {
    /// The model answered.
    Answered(ModelAnswered),
    /// The call failed.
    Failed(ModelFailed),
}

impl ModelCall {
    /// Returns the answer, if there is one.
    pub const fn answer(&self) -> Option<&ModelAnswered> {
        match &self.reply {
            Some(ModelReply::Answered(answer)) => Some(answer),
            Some(ModelReply::Failed(_)) | None => None,
        }
    }

    /// Returns `answered` or `failed`; none if no reply is recorded.
    pub const fn outcome(&self) -> Option<&'static str> {
        match &self.reply {
            Some(ModelReply::Answered(_)) => Some("answered"),
            Some(ModelReply::Failed(_)) => Some("failed"),
            None => None,
        }
    }
}

/// A tool call of the model, possibly without a result yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The call as the model made it.
    pub tool: ToolUse,
    /// The intent.
    pub intent: Option<ToolRequested>,
    /// The result.
    pub result: Option<ToolFinished>,
}

impl ToolCall {
    /// Returns how it ended, if it did.
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.result.as_ref().map(CallOutcome::from_result)
    }

    /// Returns how it ended, in a word or two.
    pub fn outcome_label(&self) -> Cow<'static, str> {
        self.outcome().map_or(Cow::Borrowed("no result"), CallOutcome::label)
    }

    /// Whether the tool, and the command it ran, succeeded.
    pub fn is_ok(&self) -> bool {
        self.outcome().is_some_and(CallOutcome::is_ok)
    }
}

/// How a tool call ended: the single rule by which every view marks a turn as failed.
///
/// A tool succeeds if it ran a command, however the command ended: exit status and test counts are in the
/// recorded facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The tool, and the command it ran, succeeded.
    Ok,
    /// The tool failed, or a signal ended its command.
    Failed,
    /// The time limit ended its command.
    TimedOut,
    /// Policy or the tool refused the call.
    Refused,
    /// A crash happened between intent and result.
    Unknown,
    /// Its command exited with this status.
    Exit(i32),
    /// This many tests failed.
    TestsFailed(u32),
    /// No test failed, but this many could not be run.
    TestErrors(u32),
}

impl CallOutcome {
    /// Returns the outcome of recorded facts. For tests the exit status decides, as it does for the model.
    pub fn from_facts(
        status: ToolStatus,
        exit: Option<i32>,
        tests: Option<TestCounts>,
        timed_out: bool,
    ) -> Self {
        match status {
            ToolStatus::Ok => {}
            ToolStatus::Error if timed_out => return Self::TimedOut,
            ToolStatus::Error => return Self::Failed,
            ToolStatus::Refused => return Self::Refused,
            ToolStatus::Unknown => return Self::Unknown,
        }
        match (exit, tests) {
            (Some(0), _) => Self::Ok,
            (_, Some(TestCounts { failed: failed @ 1.., .. })) => Self::TestsFailed(failed),
            (_, Some(TestCounts { errors: errors @ 1.., .. })) => Self::TestErrors(errors),
            (Some(exit), _) => Self::Exit(exit),
            (None, _) => Self::Ok,
        }
    }

    /// Returns the outcome of a result.
    pub fn from_result(result: &ToolFinished) -> Self {
        let facts = &result.facts;
        Self::from_facts(result.status, facts.exit, facts.tests, facts.timed_out)
    }

    /// Whether the call did not fail.
    pub fn is_ok(self) -> bool {
        self == Self::Ok
    }

    /// Returns the outcome in a word or two.
    pub fn label(self) -> Cow<'static, str> {
        match self {
            Self::Ok => "ok".into(),
            Self::Failed => "failed".into(),
            Self::TimedOut => "timed out".into(),
            Self::Refused => "refused".into(),
            Self::Unknown => "unknown".into(),
            Self::Exit(status) => format!("exit {status}").into(),
            Self::TestsFailed(count) => format!("{count} failed").into(),
            Self::TestErrors(count) => format!("{count} errors").into(),
        }
    }
}

/// A final check, or its automatic fix, possibly without a result yet.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalCheck {
    /// The intent.
    pub intent: GateRequested,
    /// The result.
    pub result: Option<GateFinished>,
}

impl FinalCheck {
    /// Returns the check's name; a fix has the marked name of its check.
    pub fn name(&self) -> Cow<'_, str> {
        let name = self.intent.gate.name.as_str();
        match self.intent.step {
            GateStep::Check => name.into(),
            GateStep::Mend => format!("mend {name}").into(),
        }
    }

    /// Returns the command that was run.
    pub fn command(&self) -> &str {
        let gate = &self.intent.gate;
        match self.intent.step {
            GateStep::Check => &gate.command,
            GateStep::Mend => {
                let command =
                    gate.mend.as_ref().and_then(|mend| mend.command.as_ref().or(mend.imports.as_ref()));
                command.map_or("", String::as_str)
            }
        }
    }

    /// Returns whether it passed; none if no result is recorded.
    pub fn passed(&self) -> Option<bool> {
        self.result.as_ref().map(|result| result.passed)
    }

    /// Returns how it ended, in a few words.
    pub fn outcome_label(&self) -> &'static str {
        self.result.as_ref().map_or("has no result", GateFinished::outcome_label)
    }

    /// Returns its duration in milliseconds.
    pub fn duration_ms(&self) -> u64 {
        self.result.as_ref().map_or(0, |result| result.duration_ms)
    }
}
