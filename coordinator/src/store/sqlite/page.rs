//! A page of events as one value: handing rows over one by one costs more than reading them.
//!
//! Each event is six integers and the lengths of kind and payload, each followed by a space; then both
//! hashes as they are, kind and payload. Bytes, not text: whether an event's own text is text is found out
//! event by event.

use docket_schema::{
    event::{Envelope, Payload},
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};

/// Selects a page of the stream named `$1`, after `$2`, of at most `$3` events.
pub(in crate::store) const PAGE_SQL: &str = "SELECT CAST(group_concat(line, '') AS BLOB) FROM (SELECT e.seq || ' ' || \
     e.position || ' ' || e.recorded_at || ' ' || e.turn || ' ' || e.epoch || ' ' || e.version || ' ' || \
     octet_length(e.kind) || ' ' || octet_length(e.payload) || ' ' || e.prev_hash || \
     e.hash || e.kind || e.payload AS line FROM events e \
     WHERE e.stream_id = (SELECT id FROM streams WHERE name = $1) AND e.seq > $2 ORDER BY e.seq LIMIT $3)";

/// The events of a page; `None` where one is not in its form.
pub(in crate::store) fn unpack(stream: &StreamId, page: &[u8]) -> Option<Vec<Envelope>> {
    let mut events = Vec::new();
    let mut rest = page;
    while !rest.is_empty() {
        events.push(event(stream, &mut rest)?);
    }
    // The database keeps the order; nothing obliges it to.
    events.sort_by_key(|event| event.seq);
    Some(events)
}

fn event(stream: &StreamId, rest: &mut &[u8]) -> Option<Envelope> {
    let seq = Seq(number(rest)?);
    let position = Position(number(rest)?);
    let recorded_at = Timestamp(number(rest)?);
    let turn = Turn(number(rest)?);
    let epoch = Epoch(number(rest)?);
    let version = number(rest)?;
    let (kind_bytes, payload_bytes) = (number(rest)?, number(rest)?);
    let prev_hash = EventHash(cut(rest, 32)?.try_into().ok()?);
    let hash = EventHash(cut(rest, 32)?.try_into().ok()?);
    let kind = text(cut(rest, kind_bytes)?)?;
    let payload = Payload::from_store(text(cut(rest, payload_bytes)?)?);
    let stream = stream.clone();
    Some(Envelope {
        stream,
        seq,
        position,
        recorded_at,
        turn,
        epoch,
        kind,
        version,
        payload,
        prev_hash,
        hash,
    })
}

fn number<T: std::str::FromStr>(rest: &mut &[u8]) -> Option<T> {
    let end = rest.iter().position(|b| *b == b' ')?;
    let word = cut(rest, end)?;
    *rest = rest.get(1..)?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn cut<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (part, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(part)
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
