//! Where a run can be gone on with: the ends of its turns, found in its log.
//!
//! Pure. A turn ends before the first `ModelRequested` of the next one; the last turn, where no
//! next one began, ends with the last event after which the run stood still: nothing asked, no call
//! open or wanted, no failed attempt behind it.

use docket_schema::{
    event::Envelope,
    ids::Turn,
    run::{CorruptLog, RunState, Stage},
};

/// No such end of a turn.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForkPointError {
    /// Nothing was decided yet.
    #[error("the run has not ended a turn yet; wait for its first, or retry its task")]
    NoTurn,
    /// The turn is not there, or has not ended.
    #[error("turn {asked} has not ended: the last one that has is {last}")]
    NotThere {
        /// The turn asked for.
        asked: Turn,
        /// The last one that ended.
        last: Turn,
    },
    /// The log does not fold.
    #[error("the run's log cannot be read")]
    Corrupt(#[source] CorruptLog),
}

/// The last event of turn `asked`, or of the last turn that ended, in `events`: a run's whole
/// history, its parents' shared part first.
pub(super) fn turn_end(
    events: &[Envelope],
    asked: Option<Turn>,
) -> Result<(&Envelope, Turn), ForkPointError> {
    let mut state = RunState::default();
    let mut ends: Vec<(Turn, &Envelope)> = Vec::new();
    let mut last: Option<&Envelope> = None;
    let mut at_rest: Option<&Envelope> = None;
    for event in events {
        if event.kind == "ModelRequested" && event.turn > state.turn {
            ends.extend(last.map(|last| (state.turn, last)));
            at_rest = None;
        }
        state.apply_envelope(event).map_err(ForkPointError::Corrupt)?;
        if stands_still(&state) {
            at_rest = Some(event);
        }
        last = Some(event);
    }
    ends.extend(at_rest.map(|event| (state.turn, event)));
    let Some((newest, _)) = ends.last() else { return Err(ForkPointError::NoTurn) };
    let (newest, asked) = (*newest, asked.unwrap_or(*newest));
    let end = ends.into_iter().find(|(turn, _)| *turn == asked);
    end.map(|(turn, event)| (event, turn)).ok_or(ForkPointError::NotThere { asked, last: newest })
}

fn stands_still(state: &RunState) -> bool {
    state.stage == Stage::Deciding && state.wanted.is_empty() && state.last_failure.is_none()
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        event::{Head, NewEvent},
        ids::{Epoch, EventHash, Position, RunId, StreamId, TaskId, Timestamp},
        run::RunOutcome,
    };
    use uuid::Uuid;

    use super::*;
    use crate::http::tests::events::{answered, asked, ended, failed, started};

    fn log(events: Vec<NewEvent>) -> Vec<Envelope> {
        let stream = StreamId::Run(RunId(Uuid::from_u128(1)));
        let mut head = Head::EMPTY;
        let mut log = Vec::new();
        for event in events {
            let mut envelope = Envelope {
                stream: stream.clone(),
                seq: head.seq.next(),
                position: Position(head.seq.0),
                recorded_at: Timestamp(0),
                turn: event.turn,
                epoch: Epoch(1),
                kind: event.kind,
                version: event.version,
                payload: event.payload,
                prev_hash: head.hash,
                hash: EventHash::ZERO,
            };
            envelope.hash = envelope.computed_hash();
            head = Head { seq: envelope.seq, hash: envelope.hash };
            log.push(envelope);
        }
        log
    }

    fn check(events: Vec<NewEvent>, asked: Option<u32>, wanted: Result<(u64, u32), &str>) {
        let log = log(events);
        let found = turn_end(&log, asked.map(Turn));
        let found = found.map(|(event, turn)| (event.seq.0, turn.0)).map_err(|error| error.to_string());
        assert_eq!(found, wanted.map_err(str::to_owned));
    }

    #[test]
    fn turns_end_before_the_next_one_asks_or_where_the_run_stood_still() {
        let run = RunId(Uuid::from_u128(1));
        let start = || started(TaskId(Uuid::from_u128(2)), run);
        let two = || vec![start(), asked(1), answered(1), asked(2), answered(2)];
        let over = || [two(), vec![ended(RunOutcome::Succeeded, 2)]].concat();
        check(vec![start()], None, Ok((1, 0)));
        check(two(), Some(0), Ok((1, 0)));
        check(two(), Some(1), Ok((3, 1)));
        check(two(), None, Ok((5, 2)));
        check(over(), None, Ok((5, 2)));
        check(over(), Some(2), Ok((5, 2)));
        check(over(), Some(3), Err("turn 3 has not ended: the last one that has is 2"));
        // In the middle of a turn, and after a failed attempt at one, the one before it counts.
        check(vec![start(), asked(1), answered(1), asked(2)], None, Ok((3, 1)));
        check(vec![start(), asked(1), answered(1), asked(2), failed(2)], None, Ok((3, 1)));
        check(vec![], None, Err("the run has not ended a turn yet; wait for its first, or retry its task"));
        check(vec![asked(1)], None, Err("the run's log cannot be read"));
    }
}
