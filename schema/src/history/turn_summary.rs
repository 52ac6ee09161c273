//! One turn as a line of a timeline shows it: tools, outcome, cost, times.

use std::{borrow::Cow, ops::Range};

use super::{calls::CallOutcome, skimmed_event::SkimmedPayload};
use crate::{
    event::Envelope,
    ids::{Timestamp, Turn},
    message::TokenUsage,
    run::RunPhase,
};

/// Tokens and money that models took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelCost {
    /// Tokens.
    pub usage: TokenUsage,
    /// Money by the pinned prices, in nano-dollars.
    pub nusd: u64,
}

impl ModelCost {
    /// Adds an answer's, saturating.
    pub const fn add(&mut self, usage: TokenUsage, nusd: u64) {
        self.usage = self.usage.plus(usage);
        self.nusd = self.nusd.saturating_add(nusd);
    }
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnOutcome {
    /// Everything did what was asked.
    #[default]
    Ok,
    /// A tool failed, its command or its tests did, or it was refused: how the last of these ended.
    ToolFailed(CallOutcome),
    /// A final check failed.
    CheckFailed,
    /// The model gave no answer.
    ModelFailed,
    /// A person is asked.
    Blocked,
    /// Something of it is still under way.
    InProgress,
    /// The run ended in it, with this word.
    Ended(&'static str),
}

impl TurnOutcome {
    /// The outcome in a word or two.
    pub fn label(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Ok => "ok",
            Self::ToolFailed(CallOutcome::Failed) => "tool failed",
            Self::ToolFailed(outcome) => return outcome.label(),
            Self::CheckFailed => "gate failed",
            Self::ModelFailed => "model failed",
            Self::Blocked => "blocked",
            Self::InProgress => "going on",
            Self::Ended(word) => word,
        })
    }

    /// Whether something failed, or waits for a person.
    pub fn is_failure(self) -> bool {
        match self {
            Self::ToolFailed(_) | Self::CheckFailed | Self::ModelFailed | Self::Blocked => true,
            Self::Ok | Self::InProgress => false,
            Self::Ended(word) => word == "failed",
        }
    }
}

/// What of a turn decides its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TurnFindings {
    open_calls: u32,
    pub(super) tool_failed: Option<CallOutcome>,
    pub(super) check_failed: bool,
    pub(super) model_failed: bool,
    blocked: bool,
    ended: Option<&'static str>,
}

impl TurnFindings {
    const fn close_call(&mut self) {
        self.open_calls = self.open_calls.saturating_sub(1);
    }

    fn record_tool_outcome(&mut self, outcome: CallOutcome) {
        if !outcome.is_ok() {
            self.tool_failed = Some(outcome);
        }
    }

    fn outcome(self) -> TurnOutcome {
        match self.ended {
            Some("failed") if self.check_failed => return TurnOutcome::CheckFailed,
            Some("failed") if self.model_failed => return TurnOutcome::ModelFailed,
            Some(word) => return TurnOutcome::Ended(word),
            None => {}
        }
        match self {
            Self { blocked: true, .. } => TurnOutcome::Blocked,
            Self { check_failed: true, .. } => TurnOutcome::CheckFailed,
            Self { model_failed: true, .. } => TurnOutcome::ModelFailed,
            Self { tool_failed: Some(outcome), .. } => TurnOutcome::ToolFailed(outcome),
            Self { open_calls: 1.., .. } => TurnOutcome::InProgress,
            Self { .. } => TurnOutcome::Ok,
        }
    }
}

/// One turn of a run, in as much as a line. The default is turn 0, before its first event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnSummary {
    /// Its number; 0 is what came before the first.
    pub turn: Turn,
    /// Its events, as places among those of the run.
    pub events: Range<usize>,
    /// Place of the event that ends it and that another run may continue from; `None` while it has not ended. Of the
    /// newest turn only a [`FoldedRun`](super::FoldedRun) knows it.
    pub end: Option<usize>,
    /// What the run was about when it was over.
    pub phase: Option<RunPhase>,
    /// The role that was at work when it began, of an engine with roles.
    pub role: Option<String>,
    /// Tools that were called, in order of their first call, each with how often.
    pub tools: Vec<(String, u32)>,
    /// Whether a snapshot was taken in it: files changed.
    pub has_snapshot: bool,
    /// What came of it.
    pub outcome: TurnOutcome,
    /// What it cost.
    pub cost: ModelCost,
    /// What the run cost up to and with it.
    pub cost_so_far: ModelCost,
    /// When its first event was recorded.
    pub began_at: Timestamp,
    /// When its last event was recorded.
    pub ended_at: Timestamp,
    pub(super) findings: TurnFindings,
}

impl TurnSummary {
    /// The turn that begins with the event at `place`.
    pub(super) fn next_turn(&self, turn: Turn, place: usize, role: Option<String>) -> Self {
        Self {
            turn,
            events: place..place,
            phase: self.phase,
            role,
            cost_so_far: self.cost_so_far,
            ..Self::default()
        }
    }

    /// Takes its next event.
    pub(super) fn apply(&mut self, envelope: &Envelope, gist: SkimmedPayload) {
        if self.events.is_empty() {
            self.began_at = envelope.recorded_at;
        }
        self.events.end += 1;
        self.ended_at = envelope.recorded_at;
        let findings = &mut self.findings;
        match gist {
            SkimmedPayload::ModelRequested | SkimmedPayload::CallRequested => findings.open_calls += 1,
            SkimmedPayload::ModelAnswered { tools, usage, cost_nusd } => {
                findings.close_call();
                findings.model_failed = false;
                self.cost.add(usage, cost_nusd);
                self.cost_so_far.add(usage, cost_nusd);
                self.count_tools(tools);
            }
            SkimmedPayload::ModelFailed => {
                findings.close_call();
                findings.model_failed = true;
            }
            SkimmedPayload::ToolFinished(outcome) => {
                findings.close_call();
                findings.record_tool_outcome(outcome);
            }
            SkimmedPayload::CheckFinished { failed } => {
                findings.close_call();
                findings.check_failed |= failed;
            }
            SkimmedPayload::SetupFinished(outcome) => findings.record_tool_outcome(outcome),
            SkimmedPayload::SnapshotTaken => self.has_snapshot = true,
            SkimmedPayload::PhaseChanged(phase) => self.phase = Some(phase),
            SkimmedPayload::Blocked => findings.blocked = true,
            SkimmedPayload::Continued => findings.blocked = false,
            SkimmedPayload::RunEnded(outcome) => {
                findings.ended = Some(outcome.as_str());
                findings.open_calls = 0;
            }
            SkimmedPayload::Other
            | SkimmedPayload::Paused
            | SkimmedPayload::RoleBegan(_)
            | SkimmedPayload::RunStarted(_)
            | SkimmedPayload::RunForked(_) => {}
        }
        self.outcome = self.findings.outcome();
    }

    fn count_tools(&mut self, tools: Vec<String>) {
        for tool in tools {
            match self.tools.iter_mut().find(|(name, _)| *name == tool) {
                Some((_, times)) => *times += 1,
                None => self.tools.push((tool, 1)),
            }
        }
    }
}
