//! Partially decoded events: of a reply only its calls and cost, of a result only its outcome. Summaries of a
//! long run need no more, and this takes a fraction of the time of decoding every text.

use std::borrow::Cow;

use serde::Deserialize;

use super::calls::CallOutcome;
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    message::TokenUsage,
    run::{Forked, RunEvent, RunOutcome, RunPhase, RunStarted, ToolStatus, tool_uses},
    tool::TestCounts,
};

/// An event, decoded as far as the summary of its turn needs it.
#[derive(Debug, Clone)]
pub struct SkimmedEvent {
    pub(super) envelope: Envelope,
    pub(super) payload: SkimmedPayload,
}

impl SkimmedEvent {
    /// Parses an event.
    ///
    /// # Errors
    ///
    /// Fails if this build does not know the event or its payload has another format.
    pub fn parse(envelope: Envelope) -> Result<Self, DecodeError> {
        SkimmedPayload::parse(&envelope).map(|gist| Self { envelope, payload: gist })
    }
}

/// The part of an event that its turn's summary needs.
#[derive(Debug, Clone)]
pub(super) enum SkimmedPayload {
    /// Nothing relevant.
    Other,
    ModelRequested,
    ModelAnswered {
        tools: Vec<String>,
        usage: TokenUsage,
        cost_nusd: u64,
    },
    ModelFailed,
    CallRequested,
    ToolFinished(CallOutcome),
    CheckFinished {
        failed: bool,
    },
    SetupFinished(CallOutcome),
    SnapshotTaken,
    PhaseChanged(RunPhase),
    RoleBegan(String),
    Blocked,
    Paused,
    Continued,
    RunStarted(Box<RunStarted>),
    RunForked(Box<Forked>),
    RunEnded(RunOutcome),
}

#[derive(Deserialize)]
struct SkimmedAnswer<'a> {
    #[serde(borrow)]
    parts: Vec<SkimmedPart<'a>>,
    usage: TokenUsage,
    #[serde(default)]
    cost_nusd: u64,
}

#[derive(Deserialize)]
struct SkimmedPart<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct SkimmedResult {
    status: ToolStatus,
    #[serde(default)]
    facts: SkimmedFacts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SkimmedFacts {
    exit: Option<i32>,
    timed_out: bool,
    tests: Option<TestCounts>,
}

impl SkimmedPayload {
    fn parse(event: &Envelope) -> Result<Self, DecodeError> {
        let payload = event.payload.as_str();
        let shape = |source| DecodeError::Shape { kind: event.kind.clone(), version: event.version, source };
        Ok(match (event.kind.as_str(), event.version) {
            ("ModelRequested", 1) => Self::ModelRequested,
            ("ToolRequested" | "GateRequested", 1) => Self::CallRequested,
            ("SnapshotTaken", 1) => Self::SnapshotTaken,
            ("ModelAnswered", 1) => {
                let answer: SkimmedAnswer<'_> = serde_json::from_str(payload).map_err(shape)?;
                let tools = answer.parts.into_iter().filter_map(|part| part.name.map(Cow::into_owned));
                let (usage, cost_nusd) = (answer.usage, answer.cost_nusd);
                Self::ModelAnswered { tools: tools.collect(), usage, cost_nusd }
            }
            ("ToolFinished", 1) => {
                let SkimmedResult { status, facts } = serde_json::from_str(payload).map_err(shape)?;
                let SkimmedFacts { exit, timed_out, tests } = facts;
                Self::ToolFinished(CallOutcome::from_facts(status, exit, tests, timed_out))
            }
            (kind, version) => Self::from_event(&RunEvent::decode(kind, version, payload)?),
        })
    }

    /// Extracts the same from a fully decoded event.
    pub(super) fn from_event(event: &RunEvent) -> Self {
        match event {
            RunEvent::ModelRequested(_) => Self::ModelRequested,
            RunEvent::ModelAnswered(e) => {
                let tools = tool_uses(&e.parts).map(|tool| tool.name.clone()).collect();
                Self::ModelAnswered { tools, usage: e.usage, cost_nusd: e.cost_nusd }
            }
            RunEvent::ModelFailed(_) => Self::ModelFailed,
            RunEvent::ToolRequested(_) | RunEvent::GateRequested(_) => Self::CallRequested,
            RunEvent::ToolFinished(e) => Self::ToolFinished(CallOutcome::from_result(e)),
            RunEvent::GateFinished(e) => Self::CheckFinished { failed: e.step.is_check() && !e.passed },
            RunEvent::BaseChecked(e) => Self::CheckFinished { failed: !e.passed },
            RunEvent::SetupFinished(e) => Self::SetupFinished(match e.exit {
                Some(exit) => CallOutcome::from_facts(ToolStatus::Ok, Some(exit), None, false),
                None => CallOutcome::Failed,
            }),
            RunEvent::SnapshotTaken(_) => Self::SnapshotTaken,
            RunEvent::PhaseChanged(e) => Self::PhaseChanged(e.phase),
            RunEvent::RoleBegan(e) => Self::RoleBegan(e.role.clone()),
            RunEvent::RunBlocked(_) => Self::Blocked,
            RunEvent::RunPaused(_) => Self::Paused,
            RunEvent::BlockerAnswered(_)
            | RunEvent::Unpaused(_)
            | RunEvent::ChildAnswered(_)
            | RunEvent::RunRecovered(_) => Self::Continued,
            RunEvent::RunStarted(e) => Self::RunStarted(Box::new(e.clone())),
            RunEvent::Forked(e) => Self::RunForked(Box::new(e.clone())),
            RunEvent::RunEnded(e) => Self::RunEnded(e.result.clone()),
            _ => Self::Other,
        }
    }
}
