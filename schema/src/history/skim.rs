//! Events read leanly: of an answer only what was called and what it cost, of a result only how it ended. It is all that
//! the summaries of a long run need, and takes a fraction of decoding every text.

use std::borrow::Cow;

use serde::Deserialize;

use super::call::CallOutcome;
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    message::Usage,
    run::{Forked, Phase, RunEvent, RunOutcome, RunStarted, ToolStatus, calls_of},
    tool::TestCounts,
};

/// An event, read as far as the summary of its turn needs it.
#[derive(Debug, Clone)]
pub struct SkimmedEvent {
    pub(super) envelope: Envelope,
    pub(super) gist: Gist,
}

impl SkimmedEvent {
    /// Reads an event.
    ///
    /// # Errors
    /// This build does not know the event, or its payload has another shape.
    pub fn read(envelope: Envelope) -> Result<Self, DecodeError> {
        Gist::read(&envelope).map(|gist| Self { envelope, gist })
    }
}

/// What an event says to the summary of its turn.
#[derive(Debug, Clone)]
pub(super) enum Gist {
    /// Nothing.
    Other,
    Asked,
    Answered {
        tools: Vec<String>,
        usage: Usage,
        cost_nusd: u64,
    },
    ModelFailed,
    Intent,
    ToolEnded(CallOutcome),
    Checked {
        failed: bool,
    },
    SetUp(CallOutcome),
    Snapshot,
    Phase(Phase),
    RoleBegan(String),
    Blocked,
    Paused,
    Continued,
    Started(Box<RunStarted>),
    Forked(Box<Forked>),
    Ended(RunOutcome),
}

#[derive(Deserialize)]
struct LeanAnswer<'a> {
    #[serde(borrow)]
    parts: Vec<LeanPart<'a>>,
    usage: Usage,
    #[serde(default)]
    cost_nusd: u64,
}

#[derive(Deserialize)]
struct LeanPart<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct LeanResult {
    status: ToolStatus,
    #[serde(default)]
    facts: LeanFacts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LeanFacts {
    exit: Option<i32>,
    timed_out: bool,
    tests: Option<TestCounts>,
}

impl Gist {
    fn read(event: &Envelope) -> Result<Self, DecodeError> {
        let payload = event.payload.as_str();
        let shape = |source| DecodeError::Shape { kind: event.kind.clone(), version: event.version, source };
        Ok(match (event.kind.as_str(), event.version) {
            ("ModelRequested", 1) => Self::Asked,
            ("ToolRequested" | "GateRequested", 1) => Self::Intent,
            ("SnapshotTaken", 1) => Self::Snapshot,
            ("ModelAnswered", 1) => {
                let answer: LeanAnswer<'_> = serde_json::from_str(payload).map_err(shape)?;
                let tools = answer.parts.into_iter().filter_map(|part| part.name.map(Cow::into_owned));
                let (usage, cost_nusd) = (answer.usage, answer.cost_nusd);
                Self::Answered { tools: tools.collect(), usage, cost_nusd }
            }
            ("ToolFinished", 1) => {
                let LeanResult { status, facts } = serde_json::from_str(payload).map_err(shape)?;
                let LeanFacts { exit, timed_out, tests } = facts;
                Self::ToolEnded(CallOutcome::from_facts(status, exit, tests, timed_out))
            }
            (kind, version) => Self::from_event(&RunEvent::decode(kind, version, payload)?),
        })
    }

    /// The same of an event that is decoded already.
    pub(super) fn from_event(event: &RunEvent) -> Self {
        match event {
            RunEvent::ModelRequested(_) => Self::Asked,
            RunEvent::ModelAnswered(e) => {
                let tools = calls_of(&e.parts).map(|tool| tool.name.clone()).collect();
                Self::Answered { tools, usage: e.usage, cost_nusd: e.cost_nusd }
            }
            RunEvent::ModelFailed(_) => Self::ModelFailed,
            RunEvent::ToolRequested(_) | RunEvent::GateRequested(_) => Self::Intent,
            RunEvent::ToolFinished(e) => Self::ToolEnded(CallOutcome::from_result(e)),
            RunEvent::GateFinished(e) => Self::Checked { failed: e.step.is_check() && !e.passed },
            RunEvent::BaseChecked(e) => Self::Checked { failed: !e.passed },
            RunEvent::SetupFinished(e) => Self::SetUp(match e.exit {
                Some(exit) => CallOutcome::from_facts(ToolStatus::Ok, Some(exit), None, false),
                None => CallOutcome::Failed,
            }),
            RunEvent::SnapshotTaken(_) => Self::Snapshot,
            RunEvent::PhaseChanged(e) => Self::Phase(e.phase),
            RunEvent::RoleBegan(e) => Self::RoleBegan(e.role.clone()),
            RunEvent::RunBlocked(_) => Self::Blocked,
            RunEvent::RunPaused(_) => Self::Paused,
            RunEvent::BlockerAnswered(_)
            | RunEvent::Unpaused(_)
            | RunEvent::ChildAnswered(_)
            | RunEvent::RunRecovered(_) => Self::Continued,
            RunEvent::RunStarted(e) => Self::Started(Box::new(e.clone())),
            RunEvent::Forked(e) => Self::Forked(Box::new(e.clone())),
            RunEvent::RunEnded(e) => Self::Ended(e.result.clone()),
            _ => Self::Other,
        }
    }
}
