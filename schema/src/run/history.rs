//! A run's whole history cut into turns: where each began, where it can be gone on with, what stood there.
//!
//! Pure. A turn begins with its first `ModelRequested`; what came before the first is turn 0. It ends
//! before the next one begins; the last turn, where no next one began, ends with the last event after which
//! the run stood still: nothing asked, no call open or wanted, no failed attempt behind it. Used by
//! whoever looks back (replay, diff, checkout) and by whoever goes on from a turn (resume, fork).

use std::ops::Range;

use super::{
    run_state::{CorruptLog, RunState},
    stage::Stage,
};
use crate::{event::Envelope, ids::Turn};

/// No such turn, or none that a run can be gone on from.
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
    NotThere {
        /// The turn asked for.
        asked: Turn,
        /// The newest one.
        last: Turn,
    },
}

/// One turn of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSpan {
    /// Its number; 0 is what came before the first.
    pub turn: Turn,
    /// Its events, as places in [`History::events`].
    pub events: Range<usize>,
    /// Place of the event that ends it and that another run may stand on; `None` while it has not ended.
    pub end: Option<usize>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct History {
    events: Vec<Envelope>,
    turns: Vec<TurnSpan>,
    last: RunState,
}

impl History {
    /// Cuts `events`, a run's whole history with its parents' shared part first, into turns.
    ///
    /// # Errors
    /// [`CorruptLog`] at the first event that does not fold.
    pub fn read(events: Vec<Envelope>) -> Result<Self, CorruptLog> {
        let mut state = RunState::default();
        let mut turns = vec![TurnSpan { turn: Turn(0), events: 0..0, end: None }];
        for (place, event) in events.iter().enumerate() {
            let begins = event.kind == "ModelRequested" && event.turn > state.turn;
            state.apply_envelope(event)?;
            if begins {
                if let Some(before) = turns.last_mut() {
                    before.end = (place > 0).then(|| place - 1);
                }
                turns.push(TurnSpan { turn: state.turn, events: place..place, end: None });
            }
            if let Some(now) = turns.last_mut() {
                now.events.end = place + 1;
                if stands_still(&state) {
                    now.end = Some(place);
                }
            }
        }
        Ok(Self { events, turns, last: state })
    }

    /// All events, oldest first.
    pub fn events(&self) -> &[Envelope] {
        &self.events
    }

    /// All turns in order, turn 0 first.
    pub fn turns(&self) -> &[TurnSpan] {
        &self.turns
    }

    /// What the whole history folds to.
    pub const fn state(&self) -> &RunState {
        &self.last
    }

    /// A turn, whether it ended or not.
    ///
    /// # Errors
    /// [`NoSuchTurn::NotThere`].
    pub fn turn(&self, asked: Turn) -> Result<&TurnSpan, NoSuchTurn> {
        let last = self.turns.last().map_or(Turn(0), |span| span.turn);
        let place = self.turns.binary_search_by_key(&asked, |span| span.turn);
        place.map(|place| &self.turns[place]).map_err(|_| NoSuchTurn::NotThere { asked, last })
    }

    /// The last event of turn `asked`, or of the last turn that ended: where another run may go on.
    ///
    /// # Errors
    /// [`NoSuchTurn::NoneEnded`], [`NoSuchTurn::NotEnded`].
    pub fn end_of(&self, asked: Option<Turn>) -> Result<(&Envelope, Turn), NoSuchTurn> {
        let ended = || self.turns.iter().filter_map(|span| span.end.map(|end| (span.turn, end)));
        let (last, _) = ended().next_back().ok_or(NoSuchTurn::NoneEnded)?;
        let asked = asked.unwrap_or(last);
        let end = ended().find(|(turn, _)| *turn == asked);
        end.map(|(turn, end)| (&self.events[end], turn)).ok_or(NoSuchTurn::NotEnded { asked, last })
    }

    /// What the run was at the end of turn `asked`: at the event that another run may stand on.
    ///
    /// # Errors
    /// [`NoSuchTurn::NoneEnded`], [`NoSuchTurn::NotEnded`].
    pub fn state_at_end(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        let (end, _) = self.end_of(Some(asked))?;
        let mut state = RunState::default();
        for event in &self.events {
            state.apply_envelope(event).expect("the same events folded when the history was read");
            if event.hash == end.hash {
                break;
            }
        }
        Ok(state)
    }

    /// What the run was after turn `asked`, as far as that turn went.
    ///
    /// # Errors
    /// [`NoSuchTurn::NotThere`].
    pub fn state_after(&self, asked: Turn) -> Result<RunState, NoSuchTurn> {
        let span = self.turn(asked)?;
        if span.events.end == self.events.len() {
            return Ok(self.last.clone());
        }
        let mut state = RunState::default();
        for event in &self.events[..span.events.end] {
            state.apply_envelope(event).expect("the same events folded when the history was read");
        }
        Ok(state)
    }
}

fn stands_still(state: &RunState) -> bool {
    let nothing_open =
        state.wanted.is_empty() && state.last_failure.is_none() && state.snapshot_parts.is_empty();
    state.stage == Stage::Deciding && nothing_open
}
