//! An append: the fence, the seq, and whether it is a repetition.

use docket_schema::{
    event::{Head, NewEvent},
    ids::{Epoch, Position, Seq, StreamId},
};

use super::batch::{missing_blob, stage_blobs};
use crate::store::{
    AppendError, Appended, Condition,
    ask::AskAppend,
    conn::{Arg, Conn},
    desk::{Desk, Draft, LoadError},
    row::{EVENT_COLUMNS, Fence, StreamRow, envelope},
};

/// Plans an append. The outer error is the store's, the inner one a refusal.
pub(in crate::store) async fn plan_append(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    ask: &AskAppend,
) -> Result<Result<Appended, AppendError>, LoadError> {
    let mut draft = Draft::default();
    let target = Target { stream: &ask.stream, condition: ask.condition, events: &ask.events };
    let appended = match draft_append(desk, conn, &mut draft, target, ask.now).await? {
        Ok(appended) => appended,
        Err(refused) => return Ok(Err(refused)),
    };
    if appended.repeated {
        return Ok(Ok(appended));
    }
    if let Some(missing) = missing_blob(desk, &ask.names, &ask.blobs) {
        return Ok(Err(AppendError::BlobMissing(missing)));
    }
    desk.staged.touched.extend(&ask.names);
    stage_blobs(desk, &ask.blobs);
    desk.accept(draft);
    Ok(Ok(appended))
}

/// What is appended where, and when it may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) stream: &'a StreamId,
    pub(super) condition: Condition,
    pub(super) events: &'a [NewEvent],
}

/// Drafts an append. The position counts from the batch's first event.
pub(super) async fn draft_append(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    target: Target<'_>,
    now: docket_schema::ids::Timestamp,
) -> Result<Result<Appended, AppendError>, LoadError> {
    let (expected, epoch) = match target.condition {
        Condition::Holder(seq, epoch) => (Some(seq), epoch),
        Condition::Expected(seq) => (Some(seq), Epoch(0)),
        Condition::AtHead => (None, Epoch(0)),
    };
    let mut row = match draft.stream(desk, target.stream) {
        Some(row) => row,
        None if may_begin(&target) => desk.new_stream(conn).await?,
        None => return Ok(Err(AppendError::NoStream)),
    };
    if let Some(expected) = expected.filter(|expected| *expected < row.head.seq)
        && let Some(appended) = repeated(desk, conn, &row, expected, epoch, target.events).await?
    {
        return Ok(Ok(appended));
    }
    if let Err(refused) = check(&row, target.condition) {
        return Ok(Err(refused));
    }
    draft.extend(target.stream, &mut row, target.events, epoch, now);
    let place = desk.staged.events.len() + draft.events.len();
    let head = row.head;
    draft.streams.push((target.stream.clone(), row));
    Ok(Ok(Appended { head, position: Position((place as u64).saturating_sub(1)), repeated: false }))
}

/// Streams that nobody leases begin with their first event; runs and tasks begin by a command.
fn may_begin(target: &Target<'_>) -> bool {
    match (target.stream, target.condition) {
        (_, Condition::Holder(..)) | (StreamId::Task(_) | StreamId::Run(_), Condition::AtHead) => false,
        (_, Condition::Expected(seq)) => seq == Seq(0),
        (StreamId::Queue(_) | StreamId::System(_), Condition::AtHead) => true,
    }
}

/// Fence first, then seq: a wrong seq is told only to who may append.
pub(in crate::store) fn check(row: &StreamRow, condition: Condition) -> Result<(), AppendError> {
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

/// The answer of the same append made before, if all of it stands where it would go. It may be in
/// the database or in this very batch.
async fn repeated(
    desk: &Desk,
    conn: &mut Conn<'_>,
    row: &StreamRow,
    expected: Seq,
    epoch: Epoch,
    events: &[NewEvent],
) -> Result<Option<Appended>, LoadError> {
    let last = Seq(expected.0 + events.len() as u64);
    if last > row.head.seq {
        return Ok(None);
    }
    let mut at = expected;
    let mut found = None;
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE e.stream_id = $1 AND e.seq > $2 AND e.seq <= $3 ORDER BY e.seq"
    );
    let args = vec![Arg::Int(row.id), Arg::Int(expected.0 as i64), Arg::Int(last.0 as i64)];
    for mut stored in conn.rows(&sql, args).await? {
        let stored = envelope(&mut stored)?;
        let wanted = events.get((at.0 - expected.0) as usize);
        if wanted.is_none_or(|wanted| !stored.is_same_as(wanted, epoch)) {
            return Ok(None);
        }
        at = stored.seq;
        found = Some((Head { seq: stored.seq, hash: stored.hash }, stored.position, true));
    }
    let staged = desk.staged.events.iter().enumerate().filter(|(_, event)| event.stream_id == row.id);
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
