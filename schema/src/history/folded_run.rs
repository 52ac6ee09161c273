//! A run's whole history with its state, and where each turn ends, so that another run can continue from there.
//!
//! A turn ends before the next one begins. The newest turn ends with the last event after which the run had nothing under
//! way: no model asked, no call open or due, no failed attempt behind it. Used to look back (replay, diff, checkout) and
//! to continue from a turn (resume, fork).

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

/// No such turn, or none that a run can continue from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchTurn {
    /// Nothing was decided yet.
    #[error("the run has not ended a turn yet; wait for its first, or retry its task")]
    NoneEnded,
    /// The turn is not there, or has not ended.
    #[error("turn {asked} has not ended: the last one that has is {last}")]
    NotEnded {
        /// The turn asked for.
        asked: Turn,
        /// The last one that ended.
        last: Turn,
    },
    /// The turn is not there at all.
    #[error("there is no turn {asked}: the run's turns go from 0 to {last}")]
    NotFound {
        /// The turn asked for.
        asked: Turn,
        /// The newest one.
        last: Turn,
    },
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct FoldedRun {
    history: RunHistory,
    state: RunState,
}

impl FoldedRun {
    /// Folds `events`, a run's whole history with its parents' shared part first.
    ///
    /// # Errors
    /// [`CorruptLog`] at the first event that does not fold.
    pub fn from_events(events: Vec<Envelope>) -> Result<Self, CorruptLog> {
        let mut run = Self::default();
        for event in events {
            run.push(event)?;
        }
        Ok(run)
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`CorruptLog`]: it does not fold. The run is of no use then.
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

    /// Its events and turns.
    pub const fn history(&self) -> &RunHistory {
        &self.history
    }

    /// All events, oldest first.
    pub fn events(&self) -> &[Envelope] {
        self.history.events()
    }

    /// All turns in order, turn 0 first.
    pub fn turns(&self) -> &[TurnSummary] {
        self.history.turns()
    }

    /// What the whole history folds to.
    pub const fn state(&self) -> &RunState {
        &self.state
    }

    /// A turn, whether it ended or not.
    ///
    /// # Errors
    /// [`NoSuchTurn::NotThere`].
    pub fn turn(&self, asked: Turn) -> Result<&TurnSummary, NoSuchTurn> {
        let turns = self.turns();
        let last = turns.last().map_or(Turn(0), |turn| turn.turn);
        let place = turns.binary_search_by_key(&asked, |turn| turn.turn);
        place.map(|place| &turns[place]).map_err(|_| NoSuchTurn::NotFound { asked, last })
    }

    /// The last event of turn `asked`, or of the last turn that ended: where another run may continue.
    ///
    /// # Errors
    /// [`NoSuchTurn::NoneEnded`], [`NoSuchTurn::NotEnded`].
    pub fn turn_end(&self, asked: Option<Turn>) -> Result<(&Envelope, Turn), NoSuchTurn> {
        self.turn_end_index(asked).map(|(place, turn)| (&self.events()[place], turn))
    }

    fn turn_end_index(&self, asked: Option<Turn>) -> Result<(usize, Turn), NoSuchTurn> {
        let ended = || self.turns().iter().filter_map(|turn| turn.end.map(|end| (end, turn.turn)));
        let (_, last) = ended().next_back().ok_or(NoSuchTurn::NoneEnded)?;
        let asked = asked.unwrap_or(last);
        ended().find(|(_, turn)| *turn == asked).ok_or(NoSuchTurn::NotEnded { asked, last })
    }

    /// What the run was at the end of turn `asked`: at the event that another run may continue from.
    ///
    /// # Errors
    /// [`NoSuchTurn::NoneEnded`], [`NoSuchTurn::NotEnded`].
    pub fn state_at_end(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        self.turn_end_index(Some(asked)).map(|(place, _)| self.state_after_events(place + 1))
    }

    /// What the run was after turn `asked`, as far as that turn went.
    ///
    /// # Errors
    /// [`NoSuchTurn::NotThere`].
    pub fn state_after(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        self.turn(asked).map(|turn| self.state_after_events(turn.events.end))
    }

    /// What its first `count` events fold to.
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
