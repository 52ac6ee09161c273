//! Summary of one turn for a timeline: tools, outcome, cost, times.

use std::{borrow::Cow, ops::Range};

use super::{calls::CallOutcome, skimmed_event::SkimmedPayload};
use crate::{
    event::Envelope,
    ids::{Timestamp, Turn},
    message::TokenUsage,
    run::RunPhase,
};

/// Tokens and money spent on models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelCost {
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost by the pinned prices, in nano-dollars.
    pub nusd: u64,
}

impl ModelCost {
    /// Adds an answer's cost, saturating.
    pub const fn add(&mut self, usage: TokenUsage, nusd: u64) {
        self.usage = self.usage.plus(usage);
        self.nusd = self.nusd.saturating_add(nusd);
    }
}

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnOutcome {
    /// Everything succeeded.
    #[default]
    Ok,
    /// A tool, its command or its tests failed, or the call was refused; contains the outcome of the last
    /// such call.
    ToolFailed(CallOutcome),
    /// A final check failed.
    CheckFailed,
    /// The model did not answer.
    ModelFailed,
    /// The run is blocked on a person.
    Blocked,
    /// The turn is still in progress.
    InProgress,
    /// The run ended in this turn, with this outcome.
    Ended(&'static str),
}

impl TurnOutcome {
    /// Returns the outcome in a word or two.
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

/// The facts that decide a turn's outcome.
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

/// Summary of one turn of a run. The default is turn 0 before its first event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnSummary {
    /// The turn's number; 0 is what happened before the first turn.
    pub turn: Turn,
    /// Its range of indices among the run's events.
    pub events: Range<usize>,
    /// Index of the event that ends it, where another run can continue; `None` while it has not ended. For
    /// the newest turn only [`FoldedRun`](super::FoldedRun) knows it.
    pub end: Option<usize>,
    /// The run's phase at the end of the turn.
    pub phase: Option<RunPhase>,
    /// The active role at the start of the turn, for engines with roles.
    pub role: Option<String>,
    /// The tools called, in order of their first call, with the number of calls.
    pub tools: Vec<(String, u32)>,
    /// Whether a snapshot was taken, which means that files changed.
    pub has_snapshot: bool,
    /// The turn's outcome.
    pub outcome: TurnOutcome,
    /// The turn's cost.
    pub cost: ModelCost,
    /// The run's cost up to and including this turn.
    pub cost_so_far: ModelCost,
    /// When its first event was recorded.
    pub began_at: Timestamp,
    /// When its last event was recorded.
    pub ended_at: Timestamp,
    pub(super) findings: TurnFindings,
}

impl TurnSummary {
    /// Creates the turn that starts with the event at index `place`.
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

    /// Adds the next event.
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
