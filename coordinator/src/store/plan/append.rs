//! Appends: checks of fence and seq, and detection of repetitions.

use docket_schema::{
    event::{Head, NewEvent, TypedEvent as _},
    ids::{Epoch, Position, Seq, StreamId, SystemTopic, Timestamp, Turn},
    system::SystemEvent,
};

use super::blobs::{find_missing_blob, stage_blobs};
use crate::store::{
    AppendCondition, AppendError, AppendOutcome,
    api::corrupt_error,
    db::{
        DbConn, SqlArg, TransactionError, read_envelope,
        row::{StreamFence, StreamRow},
        select_events_sql,
    },
    writer::{AppendCommand, StagedRequest, WorkingSet},
};

/// Plans an append. The outer error is a store failure, the inner one a refusal.
pub(super) async fn plan_append(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    command: &AppendCommand,
) -> Result<Result<AppendOutcome, AppendError>, TransactionError> {
    let mut staged = StagedRequest::default();
    let target =
        AppendTarget { stream: &command.stream, condition: command.condition, events: &command.events };
    let appended = match stage_append(set, conn, &mut staged, target, command.now).await? {
        Ok(appended) => appended,
        Err(refused) => return Ok(Err(refused)),
    };
    if appended.was_repeated {
        return Ok(Ok(appended));
    }
    if let Some(missing) = find_missing_blob(set, &command.required_blobs, &command.blobs) {
        return Ok(Err(AppendError::BlobMissing(missing)));
    }
    set.writes.touched.extend(&command.required_blobs);
    stage_blobs(set, &command.blobs);
    set.merge_staged(staged);
    Ok(Ok(appended))
}

/// Target and condition of an append.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppendTarget<'a> {
    pub(super) stream: &'a StreamId,
    pub(super) condition: AppendCondition,
    pub(super) events: &'a [NewEvent],
}

/// Stages an append. Its position counts from the batch's first event.
pub(super) async fn stage_append(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    target: AppendTarget<'_>,
    now: Timestamp,
) -> Result<Result<AppendOutcome, AppendError>, TransactionError> {
    let (expected, epoch) = match target.condition {
        AppendCondition::LeaseHolder(seq, epoch) => (Some(seq), epoch),
        AppendCondition::ExpectedSeq(seq) => (Some(seq), Epoch(0)),
        AppendCondition::AtHead => (None, Epoch(0)),
    };
    let mut row = match staged.find_stream(set, target.stream) {
        Some(row) => row,
        None if can_create_stream(&target) => set.new_stream(conn).await?,
        None => return Ok(Err(AppendError::StreamNotFound)),
    };
    if let Some(expected) = expected.filter(|expected| *expected < row.head.seq)
        && let Some(appended) = find_repeated_append(set, conn, &row, expected, epoch, target.events).await?
    {
        return Ok(Ok(appended));
    }
    if let Err(refused) = check_condition(&row, target.condition) {
        return Ok(Err(refused));
    }
    staged.append_events(target.stream, &mut row, target.events, epoch, now);
    let place = set.writes.events.len() + staged.events.len();
    let head = row.head;
    staged.streams.push((target.stream.clone(), row));
    Ok(Ok(AppendOutcome { head, position: Position((place as u64).saturating_sub(1)), was_repeated: false }))
}

/// Stages an event of a system stream, which accepts any event.
pub(super) async fn stage_system_event(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    topic: SystemTopic,
    event: SystemEvent,
    now: Timestamp,
) -> Result<(), TransactionError> {
    let (stream, events) = (StreamId::System(topic), [event.encode(Turn(0))]);
    let target = AppendTarget { stream: &stream, condition: AppendCondition::AtHead, events: &events };
    match stage_append(set, conn, staged, target, now).await? {
        Ok(_) => Ok(()),
        Err(AppendError::Store(error)) => Err(error.into()),
        Err(refused) => Err(corrupt_error(format!("{stream} takes no events: {refused}")).into()),
    }
}

/// Streams without leases are created by their first event; runs and tasks are created by commands.
fn can_create_stream(target: &AppendTarget<'_>) -> bool {
    match (target.stream, target.condition) {
        (_, AppendCondition::LeaseHolder(..))
        | (StreamId::Task(_) | StreamId::Run(_), AppendCondition::AtHead) => false,
        (_, AppendCondition::ExpectedSeq(seq)) => seq == Seq(0),
        (StreamId::Queue(_) | StreamId::System(_), AppendCondition::AtHead) => true,
    }
}

/// Checks the fence first, then the seq: only a caller that may append learns that its seq is wrong.
fn check_condition(row: &StreamRow, condition: AppendCondition) -> Result<(), AppendError> {
    if row.fence == StreamFence::Closed {
        return Err(AppendError::Closed);
    }
    let expected = match condition {
        AppendCondition::AtHead => return Ok(()),
        AppendCondition::ExpectedSeq(seq) => seq,
        AppendCondition::LeaseHolder(seq, asked) => {
            if asked != row.epoch {
                return Err(AppendError::Fenced { asked, current: row.epoch });
            }
            if row.fence != StreamFence::Open {
                return Err(AppendError::LeaseEnded { asked });
            }
            seq
        }
    };
    if expected != row.head.seq {
        return Err(AppendError::WrongSeq { expected, head: row.head });
    }
    Ok(())
}

/// Returns the original reply of a repeated append if all of it is already in place, in the database or in
/// this batch.
async fn find_repeated_append(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    row: &StreamRow,
    expected: Seq,
    epoch: Epoch,
    events: &[NewEvent],
) -> Result<Option<AppendOutcome>, TransactionError> {
    let last = Seq(expected.0 + events.len() as u64);
    if last > row.head.seq {
        return Ok(None);
    }
    let mut at = expected;
    let mut found = None;
    let sql = select_events_sql("e.stream_id = $1 AND e.seq > $2 AND e.seq <= $3 ORDER BY e.seq");
    let args = vec![SqlArg::Int(row.id), SqlArg::from_u64(expected.0), SqlArg::from_u64(last.0)];
    for mut stored in conn.query_rows(&sql, args).await? {
        let stored = read_envelope(&mut stored)?;
        let wanted = events.get((at.0 - expected.0) as usize);
        if wanted.is_none_or(|wanted| !stored.is_same_as(wanted, epoch)) {
            return Ok(None);
        }
        at = stored.seq;
        found = Some((Head { seq: stored.seq, hash: stored.hash }, stored.position, true));
    }
    let staged = set.writes.events.iter().enumerate().filter(|(_, event)| event.stream_id == row.id);
    for (place, event) in staged.filter(|(_, event)| event.seq > at && event.seq <= last) {
        let same = events.get((event.seq.0 - expected.0 - 1) as usize).is_some_and(|wanted| {
            event.kind == wanted.kind
                && event.version == wanted.version
                && event.turn == wanted.turn
                && event.epoch == epoch
                && event.payload == wanted.payload.as_str()
        });
        if !same {
            return Ok(None);
        }
        // Not yet committed, so its position is only known to the batch.
        found = Some((Head { seq: event.seq, hash: event.hash }, Position(place as u64), false));
    }
    Ok(found.map(|(head, position, repeated)| AppendOutcome { head, position, was_repeated: repeated }))
}
