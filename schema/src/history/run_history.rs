//! Incrementally built history of a run: its events and a summary of each turn.

use super::{
    skimmed_event::{SkimmedEvent, SkimmedPayload},
    turn_detail::TurnDetail,
    turn_summary::{TurnFindings, TurnSummary},
};
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::Turn,
    run::{FailureKind, Overlay, RunEvent, RunOutcome, RunStarted, SnapshotParts},
};

/// Status of a run after its last event, as far as the log shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HistoryStatus {
    /// It continues, or waits for a worker.
    #[default]
    Open,
    /// It was paused.
    Paused,
    /// It waits for a person or a child.
    Blocked,
    /// It has ended.
    Ended(RunOutcome),
}

impl HistoryStatus {
    /// Returns the status in a word or two.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Open => "not ended",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }
}

/// The turn to open first when reading a run, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartingTurn {
    /// Index of the turn in [`RunHistory::turns`].
    pub turn_index: usize,
    /// The reason, as text.
    pub reason: String,
}

/// A run's history. See the module documentation. Turns start with their first `ModelRequested`; everything
/// before belongs to turn 0, which always exists.
#[derive(Debug, Clone)]
pub struct RunHistory {
    events: Vec<Envelope>,
    turns: Vec<TurnSummary>,
    pins: Option<Box<RunStarted>>,
    status: HistoryStatus,
    role: Option<String>,
}

impl Default for RunHistory {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            turns: vec![TurnSummary::default()],
            pins: None,
            status: HistoryStatus::default(),
            role: None,
        }
    }
}

impl Extend<SkimmedEvent> for RunHistory {
    fn extend<T: IntoIterator<Item = SkimmedEvent>>(&mut self, events: T) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl RunHistory {
    /// Adds the next event, starting with the history shared with the run's ancestors.
    pub fn push(&mut self, event: SkimmedEvent) {
        let SkimmedEvent { envelope, payload: gist } = event;
        let place = self.events.len();
        if matches!(gist, SkimmedPayload::ModelRequested) && envelope.turn > self.newest_turn_mut().turn {
            let role = self.role.clone();
            let before = self.newest_turn_mut();
            before.end = place.checked_sub(1);
            let next = before.next_turn(envelope.turn, place, role);
            self.turns.push(next);
        }
        self.update_run_info(&gist);
        self.newest_turn_mut().apply(&envelope, gist);
        self.events.push(envelope);
    }

    /// Updates the information about the run as a whole.
    fn update_run_info(&mut self, gist: &SkimmedPayload) {
        match gist {
            SkimmedPayload::Blocked => self.status = HistoryStatus::Blocked,
            SkimmedPayload::Paused => self.status = HistoryStatus::Paused,
            SkimmedPayload::Continued => self.status = HistoryStatus::Open,
            SkimmedPayload::RunEnded(outcome) => self.status = HistoryStatus::Ended(outcome.clone()),
            SkimmedPayload::RoleBegan(role) => self.role = Some(role.clone()),
            SkimmedPayload::RunStarted(pins) => self.pins = Some(pins.clone()),
            SkimmedPayload::RunForked(forked) => {
                self.status = HistoryStatus::Open;
                if let Some(pins) = &mut self.pins {
                    pins.engine = forked.engine.clone().unwrap_or_else(|| pins.engine.clone());
                    pins.models = forked.models.clone().unwrap_or_else(|| pins.models.clone());
                }
            }
            _ => {}
        }
    }

    pub(super) fn newest_turn_mut(&mut self) -> &mut TurnSummary {
        self.turns.last_mut().expect("turn 0 is there from the beginning")
    }

    /// Returns all events, oldest first.
    pub fn events(&self) -> &[Envelope] {
        &self.events
    }

    /// Returns all turns in order, starting with turn 0.
    pub fn turns(&self) -> &[TurnSummary] {
        &self.turns
    }

    /// Returns the events of a turn.
    pub fn turn_events(&self, turn: &TurnSummary) -> &[Envelope] {
        self.events.get(turn.events.clone()).unwrap_or_default()
    }

    /// Decodes everything recorded in a turn.
    pub fn turn_detail(&self, turn: &TurnSummary) -> TurnDetail {
        TurnDetail::from_events(turn.turn, turn.events.start, self.turn_events(turn))
    }

    /// Returns the run's changes to its base after its first `count` events.
    ///
    /// # Errors
    ///
    /// Fails if a snapshot has a format that this build cannot decode.
    pub fn overlay_after(&self, count: usize) -> Result<Overlay, DecodeError> {
        let (mut overlay, mut parts) = (Overlay::new(), SnapshotParts::default());
        for event in self.events.iter().take(count).filter(|event| event.kind == "SnapshotTaken") {
            let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())?;
            if let RunEvent::SnapshotTaken(taken) = typed {
                let changes = parts.push_part(event.epoch, taken).into_iter().flat_map(|part| part.changes);
                overlay.extend(changes.map(|change| (change.path, change.entry)));
            }
        }
        Ok(overlay)
    }

    /// Returns the configuration pinned at its start, with a fork's changes; none before it started.
    pub fn pins(&self) -> Option<&RunStarted> {
        self.pins.as_deref()
    }

    /// Returns the status after the last event.
    pub const fn status(&self) -> &HistoryStatus {
        &self.status
    }

    /// Returns the turn to open first: for a failed run the one in which the failure began, otherwise the newest.
    pub fn starting_turn(&self) -> StartingTurn {
        let last = self.turns.len().saturating_sub(1);
        let number = |place: usize| self.turns.get(place).map_or(Turn(0), |turn| turn.turn);
        match &self.status {
            HistoryStatus::Ended(RunOutcome::Failed { why, .. }) => {
                let (place, reason) = self.failure_turn(*why);
                let place = place.unwrap_or(last);
                StartingTurn {
                    turn_index: place,
                    reason: format!("it went wrong at turn {}: {reason}", number(place)),
                }
            }
            HistoryStatus::Blocked => {
                StartingTurn { turn_index: last, reason: format!("it is blocked at turn {}", number(last)) }
            }
            HistoryStatus::Open | HistoryStatus::Paused => {
                let reason = format!("turn {} is the newest; the run has not ended", number(last));
                StartingTurn { turn_index: last, reason }
            }
            HistoryStatus::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
                let reason = format!("{} after {} turns", self.status.label(), number(last));
                StartingTurn { turn_index: last, reason }
            }
        }
    }

    /// Returns the turn that shows why the run failed, if there is one, and the reason as text.
    fn failure_turn(&self, why: FailureKind) -> (Option<usize>, &'static str) {
        let newest =
            |is_it: fn(&TurnFindings) -> bool| self.turns.iter().rposition(|turn| is_it(&turn.findings));
        match why {
            FailureKind::Gates => (newest(|seen| seen.check_failed), "the last with a failed final check"),
            FailureKind::Model | FailureKind::Configuration => {
                (newest(|seen| seen.model_failed), "the last in which the model failed")
            }
            FailureKind::Environment => {
                (newest(|seen| seen.tool_failed.is_some()), "the last in which something failed")
            }
            FailureKind::Plan => (None, "where the last plan failed"),
            FailureKind::TurnLimit | FailureKind::Limit => (None, "where the limit was reached"),
            FailureKind::EmptyAnswers => (None, "where the last empty answer came"),
        }
    }
}
