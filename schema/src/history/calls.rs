//! The calls of a turn: of models, of tools, of final checks, each an intent with what came of it.

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

/// A call of a model, as far as it went.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Place of the intent among the run's events.
    pub event_index: usize,
    /// Place of the intent in its stream.
    pub seq: Seq,
    /// The intent.
    pub intent: ModelRequested,
    /// What came of it.
    pub reply: Option<ModelReply>,
}

/// What came of a call of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelReply {
    /// The model answered.
    Answered(ModelAnswered),
    /// It did not.
    Failed(ModelFailed),
}

impl ModelCall {
    /// The answer, where there is one.
    pub const fn answer(&self) -> Option<&ModelAnswered> {
        match &self.reply {
            Some(ModelReply::Answered(answer)) => Some(answer),
            Some(ModelReply::Failed(_)) | None => None,
        }
    }

    /// `answered`, `failed`; none while no reply is recorded.
    pub const fn outcome(&self) -> Option<&'static str> {
        match &self.reply {
            Some(ModelReply::Answered(_)) => Some("answered"),
            Some(ModelReply::Failed(_)) => Some("failed"),
            None => None,
        }
    }
}

/// A tool call of the model, as far as it went.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// As the model made it.
    pub tool: ToolUse,
    /// The intent.
    pub intent: Option<ToolRequested>,
    /// The result.
    pub result: Option<ToolFinished>,
}

impl ToolCall {
    /// How it ended, if it did.
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.result.as_ref().map(CallOutcome::from_result)
    }

    /// How it ended, in a word or two.
    pub fn outcome_label(&self) -> Cow<'static, str> {
        self.outcome().map_or(Cow::Borrowed("no result"), CallOutcome::label)
    }

    /// Whether it did what was asked, and what it ran ended well.
    pub fn is_ok(&self) -> bool {
        self.outcome().is_some_and(CallOutcome::is_ok)
    }
}

/// How a tool call ended: the one rule by which every view marks a turn as failed.
///
/// A tool that did what was asked has run a command, whatever the end of that command: its exit status and the counts of
/// its tests are in the recorded facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// It did what was asked, and what it ran ended well.
    Ok,
    /// The tool failed, or a signal ended its command.
    Failed,
    /// The time limit ended its command.
    TimedOut,
    /// Policy or the tool refused it.
    Refused,
    /// A crash came between intent and result.
    Unknown,
    /// Its command ended with this status.
    Exit(i32),
    /// This many of its tests failed.
    TestsFailed(u32),
    /// None of its tests failed, but this many could not be run.
    TestErrors(u32),
}

impl CallOutcome {
    /// The outcome of recorded facts. Where tests were run the exit status decides, as it does for the model.
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

    /// The outcome of a result.
    pub fn from_result(result: &ToolFinished) -> Self {
        let facts = &result.facts;
        Self::from_facts(result.status, facts.exit, facts.tests, facts.timed_out)
    }

    /// Whether the turn's work did not fail in it.
    pub fn is_ok(self) -> bool {
        self == Self::Ok
    }

    /// The outcome in a word or two.
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

/// A final check, or the fix of one without a model, as far as it went.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalCheck {
    /// The intent.
    pub intent: GateRequested,
    /// The result.
    pub result: Option<GateFinished>,
}

impl FinalCheck {
    /// The name of the check; a fix has the name of its check, marked.
    pub fn name(&self) -> Cow<'_, str> {
        let name = self.intent.gate.name.as_str();
        match self.intent.step {
            GateStep::Check => name.into(),
            GateStep::Mend => format!("mend {name}").into(),
        }
    }

    /// The command that was run.
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

    /// Whether it passed; none while no result is recorded.
    pub fn passed(&self) -> Option<bool> {
        self.result.as_ref().map(|result| result.passed)
    }

    /// How it ended, in a word or a few.
    pub fn outcome_label(&self) -> &'static str {
        self.result.as_ref().map_or("has no result", GateFinished::outcome_label)
    }

    /// How long it ran, in milliseconds.
    pub fn duration_ms(&self) -> u64 {
        self.result.as_ref().map_or(0, |result| result.duration_ms)
    }
}
