//! A run's complete history with its state and the end of each turn, where another run can continue.
//!
//! A turn ends before the next one starts. The newest turn ends with the last event after which nothing is in
//! progress: no model call, no open or due tool call, and no failed attempt. Used to look at past states
//! (replay, diff, checkout) and to continue from a turn (resume, fork).

use super::{
    run_history::RunHistory,
    skimmed_event::{SkimmedEvent, SkimmedPayload},
    turn_summary::TurnSummary,
};
use crate::{
    event::{Envelope, TypedEvent as _},
    ids::Turn,
    run::{CorruptLog, RunEvent, RunState},
};

/// The turn does not exist, or a run cannot continue from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchTurn {
    /// No turn has ended yet.
    #[error("the run has not ended a turn yet; wait for its first, or retry its task")]
    NoneEnded,
    /// The turn does not exist or has not ended.
    #[error("turn {asked} has not ended: the last finished turn is {last}")]
    NotEnded {
        /// The requested turn.
        asked: Turn,
        /// The last one that ended.
        last: Turn,
    },
    /// The turn does not exist.
    #[error("turn {asked} does not exist: the run has turns 0 to {last}")]
    NotFound {
        /// The requested turn.
        asked: Turn,
        /// The newest one.
        last: Turn,
    },
}

/// A run's folded history. See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct FoldedRun {
    history: RunHistory,
    state: RunState,
}

impl FoldedRun {
    /// Folds `events`, a run's complete history starting with the part shared with its ancestors.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] at the first event that does not fold.
    pub fn from_events(events: Vec<Envelope>) -> Result<Self, CorruptLog> {
        let mut run = Self::default();
        for event in events {
            run.push(event)?;
        }
        Ok(run)
    }

    /// Folds the next event.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] if it does not fold; the run must not be used then.
    pub fn push(&mut self, envelope: Envelope) -> Result<(), CorruptLog> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })?;
        let gist = SkimmedPayload::from_event(&event);
        self.state.apply((&envelope).into(), event)?;
        self.history.push(SkimmedEvent { envelope, payload: gist });
        if self.state.is_at_rest() {
            let place = self.history.events().len() - 1;
            self.history.newest_turn_mut().end = Some(place);
        }
        Ok(())
    }

    /// Returns its events and turns.
    pub const fn history(&self) -> &RunHistory {
        &self.history
    }

    /// Returns all events, oldest first.
    pub fn events(&self) -> &[Envelope] {
        self.history.events()
    }

    /// Returns all turns in order, starting with turn 0.
    pub fn turns(&self) -> &[TurnSummary] {
        self.history.turns()
    }

    /// Returns the state after the complete history.
    pub const fn state(&self) -> &RunState {
        &self.state
    }

    /// Returns a turn, whether it has ended or not.
    ///
    /// # Errors
    ///
    /// [`NoSuchTurn::NotFound`] if it does not exist.
    pub fn turn(&self, asked: Turn) -> Result<&TurnSummary, NoSuchTurn> {
        let turns = self.turns();
        let last = turns.last().map_or(Turn(0), |turn| turn.turn);
        let place = turns.binary_search_by_key(&asked, |turn| turn.turn);
        place.map(|place| &turns[place]).map_err(|_| NoSuchTurn::NotFound { asked, last })
    }

    /// Returns the last event of turn `asked`, or of the last turn that ended: where another run can
    /// continue.
    ///
    /// # Errors
    ///
    /// [`NoSuchTurn::NoneEnded`] or [`NoSuchTurn::NotEnded`].
    pub fn turn_end(&self, asked: Option<Turn>) -> Result<(&Envelope, Turn), NoSuchTurn> {
        self.turn_end_index(asked).map(|(place, turn)| (&self.events()[place], turn))
    }

    fn turn_end_index(&self, asked: Option<Turn>) -> Result<(usize, Turn), NoSuchTurn> {
        let ended = || self.turns().iter().filter_map(|turn| turn.end.map(|end| (end, turn.turn)));
        let (_, last) = ended().next_back().ok_or(NoSuchTurn::NoneEnded)?;
        let asked = asked.unwrap_or(last);
        ended().find(|(_, turn)| *turn == asked).ok_or(NoSuchTurn::NotEnded { asked, last })
    }

    /// Returns the state at the end of turn `asked`, at the event that another run can continue from.
    ///
    /// # Errors
    ///
    /// [`NoSuchTurn::NoneEnded`] or [`NoSuchTurn::NotEnded`].
    pub fn state_at_end(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        self.turn_end_index(Some(asked)).map(|(place, _)| self.state_after_events(place + 1))
    }

    /// Returns the state after the last recorded event of turn `asked`.
    ///
    /// # Errors
    ///
    /// [`NoSuchTurn::NotFound`] if it does not exist.
    pub fn state_after(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        self.turn(asked).map(|turn| self.state_after_events(turn.events.end))
    }

    /// Returns the state after the first `count` events.
    fn state_after_events(&self, count: usize) -> RunState {
        if count == self.events().len() {
            return self.state.clone();
        }
        let mut state = RunState::default();
        for event in &self.events()[..count] {
            state.apply_envelope(event).expect("the same events folded when the history was read");
        }
        state
    }
}
