//! A run as loaded by the stepper. Pure.

use docket_schema::{
    event::Envelope,
    history::{HistoryStatus, RunHistory, StartingTurn, TurnSummary},
    ids::{RunId, Seq, StreamId},
    run::RunOutcome,
};

/// A loaded run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) id: RunId,
    /// Its complete history, the part shared with its parents first.
    pub(super) history: RunHistory,
}

impl Run {
    /// Creates a run without events.
    pub(super) fn new(id: RunId) -> Self {
        Self { id, history: RunHistory::default() }
    }

    pub(super) fn events(&self) -> &[Envelope] {
        self.history.events()
    }

    /// Its turns; empty before it started.
    pub(super) fn turns(&self) -> &[TurnSummary] {
        if self.events().is_empty() { &[] } else { self.history.turns() }
    }

    /// Returns the turn to open first, and why. A successful run opens at its first turn.
    pub(super) fn initial_position(&self) -> StartingTurn {
        let opening = self.history.starting_turn();
        match self.history.status() {
            HistoryStatus::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
                let last = self.history.turns().last().map_or(0, |turn| turn.turn.0);
                StartingTurn {
                    turn_index: opening.turn_index.min(1),
                    reason: format!("{last} turns; ? shows the keys"),
                }
            }
            HistoryStatus::Ended(RunOutcome::Failed { .. })
            | HistoryStatus::Open
            | HistoryStatus::Paused
            | HistoryStatus::Blocked => opening,
        }
    }

    /// The last sequence number of the run's own stream; 0 if it is empty.
    pub(super) fn own_head(&self) -> Seq {
        let own = StreamId::Run(self.id);
        self.events().last().filter(|event| event.stream == own).map_or(Seq(0), |event| event.seq)
    }
}
