//! A run cut into rows, one per turn, with no more than the timeline shows: the skeleton.
//!
//! It is all that the first screen needs of the turns that are not looked at, so events are read leanly: of
//! an answer only what was called and what it cost, of a result only how it ended. Everything else of a turn
//! is read when somebody looks at it (`detail`). Pure. The cut is that of
//! [`History`](docket_schema::run::History): a turn begins with its first `ModelRequested`.

use std::{borrow::Cow, ops::Range};

use docket_schema::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{RunId, Timestamp, Turn},
    message::Usage,
    run::{FailureKind, Forked, ModelAnswered, Phase, RunEvent, RunOutcome, RunStarted, ToolStatus},
    tool::TestCounts,
};
use serde::Deserialize;

use crate::{came_to::CameTo, events};

/// What a turn came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Everything did what was asked.
    Ok,
    /// A tool failed, its command or its tests did, or it was refused: how the last of these ended.
    ToolFailed(CameTo),
    /// A final check failed.
    GateFailed,
    /// The model gave no answer.
    ModelFailed,
    /// A person is asked.
    Blocked,
    /// Something of it is still under way.
    Going,
    /// The run ended in it, with this word.
    Ended(&'static str),
}

impl Fate {
    /// The word.
    pub(super) fn word(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Ok => "ok",
            Self::ToolFailed(CameTo::Failed) => "tool failed",
            Self::ToolFailed(came_to) => return came_to.word(),
            Self::GateFailed => "gate failed",
            Self::ModelFailed => "model failed",
            Self::Blocked => "blocked",
            Self::Going => "going on",
            Self::Ended(word) => word,
        })
    }

    /// Whether the keys that go to failures stop here.
    pub(super) fn is_failure(self) -> bool {
        match self {
            Self::ToolFailed(_) | Self::GateFailed | Self::ModelFailed | Self::Blocked => true,
            Self::Ok | Self::Going => false,
            Self::Ended(word) => word == "failed",
        }
    }
}

/// Where a run stands after its last event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes on, or waits for somebody to go on with it.
    Open,
    /// It rests.
    Paused,
    /// It waits for a person or a child.
    Blocked,
    /// It is over.
    Ended(RunOutcome),
}

impl Standing {
    /// The word for the header.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Open => "not ended",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }
}

/// One turn in the timeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Its number; 0 is what came before the first.
    pub(super) turn: Turn,
    /// Its events, as places in [`Run::events`].
    pub(super) events: Range<usize>,
    /// What the run was about when the turn was over.
    pub(super) phase: Option<Phase>,
    /// Tools that were called, in order of their first call, each with how often.
    pub(super) tools: Vec<(String, u32)>,
    /// What it came to.
    pub(super) fate: Fate,
    /// Tokens.
    pub(super) usage: Usage,
    /// Cost in nano-dollars.
    pub(super) cost_nusd: u64,
    /// Cost of the run up to and with this turn, in nano-dollars.
    pub(super) cost_so_far_nusd: u64,
    /// Tokens of the run up to and with this turn.
    pub(super) usage_so_far: Usage,
    /// When its first event was recorded.
    pub(super) began_at: Timestamp,
    /// When its last event was recorded.
    pub(super) ended_at: Timestamp,
    /// What was seen of failures, for the word at the end.
    seen: Seen,
}

/// What of a turn decides its fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    open: u32,
    tool_failed: Option<CameTo>,
    gate_failed: bool,
    model_failed: bool,
    blocked: bool,
    ended: Option<&'static str>,
}

impl Seen {
    fn fate(self) -> Fate {
        match self.ended {
            Some("failed") if self.gate_failed => return Fate::GateFailed,
            Some("failed") if self.model_failed => return Fate::ModelFailed,
            Some(word) => return Fate::Ended(word),
            None => {}
        }
        match self {
            Self { blocked: true, .. } => Fate::Blocked,
            Self { gate_failed: true, .. } => Fate::GateFailed,
            Self { model_failed: true, .. } => Fate::ModelFailed,
            Self { tool_failed: Some(came_to), .. } => Fate::ToolFailed(came_to),
            Self { open: 1.., .. } => Fate::Going,
            Self { .. } => Fate::Ok,
        }
    }
}

/// A run as the stepper holds it.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Which.
    pub(super) id: RunId,
    /// Its whole history, its parents' shared part first.
    pub(super) events: Vec<Envelope>,
    /// Its turns, in order.
    pub(super) rows: Vec<Row>,
    /// What it pinned, with a fork's changes; none before it started.
    pub(super) pins: Option<Box<RunStarted>>,
    /// Where it stands.
    pub(super) standing: Standing,
}

/// An event that was read as far as the timeline needs it.
pub(super) struct Read {
    event: Envelope,
    fact: Fact,
}

impl Read {
    /// Reads it.
    ///
    /// # Errors
    /// This build does not know the event, or its payload has another shape.
    pub(super) fn of(event: Envelope) -> Result<Self, DecodeError> {
        fact(&event).map(|fact| Self { event, fact })
    }
}

/// What an event says to the timeline.
enum Fact {
    Nothing,
    Asked,
    Answered { tools: Vec<String>, usage: Usage, cost_nusd: u64 },
    ModelFailed,
    Wanted,
    Finished(CameTo),
    Checked { failed: bool },
    Setup(CameTo),
    Phase(Phase),
    Blocked,
    Paused,
    GoesOn,
    Typed(Landmark),
}

/// An event that says what the whole run is.
enum Landmark {
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

fn fact(event: &Envelope) -> Result<Fact, DecodeError> {
    let payload = event.payload.as_str();
    let shape = |source| DecodeError::Shape { kind: event.kind.clone(), version: event.version, source };
    match (event.kind.as_str(), event.version) {
        ("ModelRequested", 1) => return Ok(Fact::Asked),
        ("ToolRequested" | "GateRequested", 1) => return Ok(Fact::Wanted),
        ("SnapshotTaken", 1) => return Ok(Fact::Nothing),
        ("ModelAnswered", 1) => {
            let answer: LeanAnswer<'_> = serde_json::from_str(payload).map_err(shape)?;
            let tools = answer.parts.into_iter().filter_map(|part| part.name.map(Cow::into_owned)).collect();
            return Ok(Fact::Answered { tools, usage: answer.usage, cost_nusd: answer.cost_nusd });
        }
        ("ToolFinished", 1) => {
            let LeanResult { status, facts } = serde_json::from_str(payload).map_err(shape)?;
            let LeanFacts { exit, timed_out, tests } = facts;
            return Ok(Fact::Finished(CameTo::of(status, exit, tests, timed_out)));
        }
        _ => {}
    }
    Ok(typed(RunEvent::decode(&event.kind, event.version, payload)?))
}

fn typed(event: RunEvent) -> Fact {
    match event {
        RunEvent::ModelRequested(_) => Fact::Asked,
        RunEvent::ModelAnswered(ModelAnswered { parts, usage, cost_nusd, .. }) => {
            let tools = events::tool_uses(&parts).map(|tool| tool.name.clone()).collect();
            Fact::Answered { tools, usage, cost_nusd }
        }
        RunEvent::ModelFailed(_) => Fact::ModelFailed,
        RunEvent::ToolRequested(_) | RunEvent::GateRequested(_) => Fact::Wanted,
        RunEvent::ToolFinished(e) => Fact::Finished(CameTo::of_result(&e)),
        RunEvent::GateFinished(e) => Fact::Checked { failed: e.step.is_check() && !e.passed },
        RunEvent::BaseChecked(e) => Fact::Checked { failed: !e.passed },
        RunEvent::SetupFinished(e) => Fact::Setup(
            e.exit.map_or(CameTo::Failed, |exit| CameTo::of(ToolStatus::Ok, Some(exit), None, false)),
        ),
        RunEvent::PhaseChanged(e) => Fact::Phase(e.phase),
        RunEvent::RunBlocked(_) => Fact::Blocked,
        RunEvent::RunPaused(_) => Fact::Paused,
        RunEvent::BlockerAnswered(_)
        | RunEvent::Unpaused(_)
        | RunEvent::ChildAnswered(_)
        | RunEvent::RunRecovered(_) => Fact::GoesOn,
        RunEvent::RunStarted(e) => Fact::Typed(Landmark::Started(Box::new(e))),
        RunEvent::Forked(e) => Fact::Typed(Landmark::Forked(Box::new(e))),
        RunEvent::RunEnded(e) => Fact::Typed(Landmark::Ended(e.result)),
        RunEvent::SnapshotTaken(_)
        | RunEvent::Told(_)
        | RunEvent::CancelRequested(_)
        | RunEvent::PauseRequested(_)
        | RunEvent::PolicyChanged(_)
        | RunEvent::LimitReached(_)
        | RunEvent::Delegated(_)
        | RunEvent::Compacted(_)
        | RunEvent::RolesPinned(_)
        | RunEvent::RoleBegan(_)
        | RunEvent::Concluded(_)
        | RunEvent::WorkspaceEdited(_) => Fact::Nothing,
    }
}

impl Run {
    /// A run of which nothing is known yet.
    pub(super) const fn new(id: RunId) -> Self {
        Self { id, events: Vec::new(), rows: Vec::new(), pins: None, standing: Standing::Open }
    }

    /// Adds events that follow those it has.
    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = Read>) {
        for Read { event, fact } in events {
            self.take(&event, fact);
            self.events.push(event);
        }
    }

    fn take(&mut self, event: &Envelope, fact: Fact) {
        let place = self.events.len();
        let begins = matches!(fact, Fact::Asked) && self.rows.last().is_none_or(|row| event.turn > row.turn);
        if self.rows.is_empty() {
            self.rows.push(Row::after(None, Turn(0), place, event.recorded_at));
        }
        if begins {
            let row = Row::after(self.rows.last(), event.turn, place, event.recorded_at);
            self.rows.push(row);
        }
        if let Fact::Typed(event) = &fact {
            self.pin(event);
        }
        match fact {
            Fact::Blocked => self.standing = Standing::Blocked,
            Fact::Paused => self.standing = Standing::Paused,
            Fact::GoesOn => self.standing = Standing::Open,
            Fact::Nothing
            | Fact::Asked
            | Fact::Answered { .. }
            | Fact::ModelFailed
            | Fact::Wanted
            | Fact::Finished(_)
            | Fact::Checked { .. }
            | Fact::Setup(_)
            | Fact::Phase(_)
            | Fact::Typed(_) => {}
        }
        if let Some(row) = self.rows.last_mut() {
            row.take(fact);
            row.events.end = place + 1;
            row.ended_at = event.recorded_at;
            row.fate = row.seen.fate();
        }
    }

    fn pin(&mut self, event: &Landmark) {
        match event {
            Landmark::Started(e) => self.pins = Some(e.clone()),
            Landmark::Forked(e) => {
                self.standing = Standing::Open;
                if let Some(pins) = &mut self.pins {
                    pins.engine = e.engine.clone().unwrap_or_else(|| pins.engine.clone());
                    pins.models = e.models.clone().unwrap_or_else(|| pins.models.clone());
                }
            }
            Landmark::Ended(result) => self.standing = Standing::Ended(result.clone()),
        }
    }

    /// Where somebody who opens the run wants to begin, and why there.
    pub(super) fn opening(&self) -> (usize, String) {
        let last = self.rows.len().saturating_sub(1);
        let newest = |what: &dyn Fn(&Row) -> bool| self.rows.iter().rposition(what);
        let at = |row: usize| self.rows.get(row).map_or(Turn(0), |row| row.turn);
        match &self.standing {
            Standing::Ended(RunOutcome::Failed { why, .. }) => {
                let (row, reason) = match why {
                    FailureKind::Gates => {
                        (newest(&|row| row.seen.gate_failed), "the last with a failed final check")
                    }
                    FailureKind::Model | FailureKind::Configuration => {
                        (newest(&|row| row.seen.model_failed), "the last in which the model failed")
                    }
                    FailureKind::Environment => {
                        (newest(&|row| row.seen.tool_failed.is_some()), "the last in which something failed")
                    }
                    FailureKind::Plan => (None, "where the last plan failed"),
                    FailureKind::TurnLimit | FailureKind::Limit => (None, "where the limit was reached"),
                    FailureKind::EmptyAnswers => (None, "where the last empty answer came"),
                };
                let row = row.unwrap_or(last);
                (row, format!("it went wrong at turn {}: {reason}", at(row)))
            }
            Standing::Blocked => (last, format!("it is blocked at turn {}", at(last))),
            Standing::Open | Standing::Paused => {
                (last, format!("turn {} is the newest; the run has not ended", at(last)))
            }
            Standing::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
                (last.min(1), format!("{} turns; ? shows the keys", at(last)))
            }
        }
    }
}

impl Row {
    fn after(before: Option<&Self>, turn: Turn, place: usize, at: Timestamp) -> Self {
        Self {
            turn,
            events: place..place,
            phase: before.and_then(|row| row.phase),
            tools: Vec::new(),
            fate: Fate::Ok,
            usage: Usage::default(),
            cost_nusd: 0,
            cost_so_far_nusd: before.map_or(0, |row| row.cost_so_far_nusd),
            usage_so_far: before.map_or_else(Usage::default, |row| row.usage_so_far),
            began_at: at,
            ended_at: at,
            seen: Seen::default(),
        }
    }

    fn take(&mut self, fact: Fact) {
        let seen = &mut self.seen;
        match fact {
            Fact::Nothing | Fact::Paused => {}
            Fact::Asked | Fact::Wanted => seen.open += 1,
            Fact::Answered { tools, usage, cost_nusd } => {
                seen.open = seen.open.saturating_sub(1);
                seen.model_failed = false;
                self.usage = self.usage.plus(usage);
                self.usage_so_far = self.usage_so_far.plus(usage);
                self.cost_nusd = self.cost_nusd.saturating_add(cost_nusd);
                self.cost_so_far_nusd = self.cost_so_far_nusd.saturating_add(cost_nusd);
                for tool in tools {
                    match self.tools.iter_mut().find(|(name, _)| *name == tool) {
                        Some((_, times)) => *times += 1,
                        None => self.tools.push((tool, 1)),
                    }
                }
            }
            Fact::ModelFailed => {
                seen.open = seen.open.saturating_sub(1);
                seen.model_failed = true;
            }
            Fact::Finished(came_to) => {
                seen.open = seen.open.saturating_sub(1);
                seen.tool_failed = Some(came_to).filter(|came_to| !came_to.is_ok()).or(seen.tool_failed);
            }
            Fact::Checked { failed } => {
                seen.open = seen.open.saturating_sub(1);
                seen.gate_failed |= failed;
            }
            Fact::Setup(came_to) => {
                seen.tool_failed = Some(came_to).filter(|came_to| !came_to.is_ok()).or(seen.tool_failed);
            }
            Fact::Phase(phase) => self.phase = Some(phase),
            Fact::Blocked => seen.blocked = true,
            Fact::GoesOn => seen.blocked = false,
            Fact::Typed(Landmark::Ended(result)) => {
                seen.ended = Some(result.as_str());
                seen.open = 0;
            }
            Fact::Typed(Landmark::Started(_) | Landmark::Forked(_)) => {}
        }
    }
}
