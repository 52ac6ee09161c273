//! An append: the fence, the seq, and whether it is a repetition.

use docket_schema::{
    event::{Head, NewEvent, TypedEvent as _},
    ids::{Epoch, Position, Seq, StreamId, SystemTopic, Timestamp, Turn},
    system::SystemEvent,
};

use super::blobs::{missing_blob, stage_blobs};
use crate::store::{
    AppendError, Appended, Condition,
    api::corrupt,
    db::{
        Arg, Conn, TransactionError, envelope,
        row::{Fence, StreamRow},
        select_events,
    },
    writer::{AppendCommand, StagedRequest, WorkingSet},
};

/// Plans an append. The outer error is the store's, the inner one a refusal.
pub(super) async fn plan_append(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    command: &AppendCommand,
) -> Result<Result<Appended, AppendError>, TransactionError> {
    let mut staged = StagedRequest::default();
    let target = Target { stream: &command.stream, condition: command.condition, events: &command.events };
    let appended = match stage_append(set, conn, &mut staged, target, command.now).await? {
        Ok(appended) => appended,
        Err(refused) => return Ok(Err(refused)),
    };
    if appended.repeated {
        return Ok(Ok(appended));
    }
    if let Some(missing) = missing_blob(set, &command.names, &command.blobs) {
        return Ok(Err(AppendError::BlobMissing(missing)));
    }
    set.writes.touched.extend(&command.names);
    stage_blobs(set, &command.blobs);
    set.accept(staged);
    Ok(Ok(appended))
}

/// What is appended where, and when it may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) stream: &'a StreamId,
    pub(super) condition: Condition,
    pub(super) events: &'a [NewEvent],
}

/// Stages an append. The position counts from the batch's first event.
pub(super) async fn stage_append(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    staged: &mut StagedRequest,
    target: Target<'_>,
    now: Timestamp,
) -> Result<Result<Appended, AppendError>, TransactionError> {
    let (expected, epoch) = match target.condition {
        Condition::Holder(seq, epoch) => (Some(seq), epoch),
        Condition::Expected(seq) => (Some(seq), Epoch(0)),
        Condition::AtHead => (None, Epoch(0)),
    };
    let mut row = match staged.stream(set, target.stream) {
        Some(row) => row,
        None if may_begin(&target) => set.new_stream(conn).await?,
        None => return Ok(Err(AppendError::NoStream)),
    };
    if let Some(expected) = expected.filter(|expected| *expected < row.head.seq)
        && let Some(appended) = find_repeated(set, conn, &row, expected, epoch, target.events).await?
    {
        return Ok(Ok(appended));
    }
    if let Err(refused) = check(&row, target.condition) {
        return Ok(Err(refused));
    }
    staged.extend(target.stream, &mut row, target.events, epoch, now);
    let place = set.writes.events.len() + staged.events.len();
    let head = row.head;
    staged.streams.push((target.stream.clone(), row));
    Ok(Ok(Appended { head, position: Position((place as u64).saturating_sub(1)), repeated: false }))
}

/// Stages an event of a system stream, which takes every event.
pub(super) async fn stage_system_event(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    staged: &mut StagedRequest,
    topic: SystemTopic,
    event: SystemEvent,
    now: Timestamp,
) -> Result<(), TransactionError> {
    let (stream, events) = (StreamId::System(topic), [event.encode(Turn(0))]);
    let target = Target { stream: &stream, condition: Condition::AtHead, events: &events };
    match stage_append(set, conn, staged, target, now).await? {
        Ok(_) => Ok(()),
        Err(AppendError::Store(error)) => Err(error.into()),
        Err(refused) => Err(corrupt(format!("{stream} takes no events: {refused}")).into()),
    }
}

/// Streams that are not leased begin with their first event; runs and tasks begin by a command.
fn may_begin(target: &Target<'_>) -> bool {
    match (target.stream, target.condition) {
        (_, Condition::Holder(..)) | (StreamId::Task(_) | StreamId::Run(_), Condition::AtHead) => false,
        (_, Condition::Expected(seq)) => seq == Seq(0),
        (StreamId::Queue(_) | StreamId::System(_), Condition::AtHead) => true,
    }
}

/// Fence first, then seq: only a caller that may append learns that the seq is wrong.
fn check(row: &StreamRow, condition: Condition) -> Result<(), AppendError> {
    if row.fence == Fence::Closed {
        return Err(AppendError::Closed);
    }
    let expected = match condition {
        Condition::AtHead => return Ok(()),
        Condition::Expected(seq) => seq,
        Condition::Holder(seq, asked) => {
            if asked != row.epoch {
                return Err(AppendError::Fenced { asked, current: row.epoch });
            }
            if row.fence != Fence::Open {
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

/// The answer of the same append made before, if all of it is where it would go. It may be in
/// the database or in this very batch.
async fn find_repeated(
    set: &WorkingSet,
    conn: &mut Conn<'_>,
    row: &StreamRow,
    expected: Seq,
    epoch: Epoch,
    events: &[NewEvent],
) -> Result<Option<Appended>, TransactionError> {
    let last = Seq(expected.0 + events.len() as u64);
    if last > row.head.seq {
        return Ok(None);
    }
    let mut at = expected;
    let mut found = None;
    let sql = select_events("e.stream_id = $1 AND e.seq > $2 AND e.seq <= $3 ORDER BY e.seq");
    let args = vec![Arg::Int(row.id), Arg::count(expected.0), Arg::count(last.0)];
    for mut stored in conn.rows(&sql, args).await? {
        let stored = envelope(&mut stored)?;
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
        // Not yet committed: its position is the batch's to say, so it is no repetition to `place`.
        found = Some((Head { seq: event.seq, hash: event.hash }, Position(place as u64), false));
    }
    Ok(found.map(|(head, position, repeated)| Appended { head, position, repeated }))
}
