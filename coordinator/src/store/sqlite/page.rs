//! A page of events as one value: handing rows over one by one costs more than reading them.
//!
//! Each event is seven integers, the lengths of kind and payload, and both hashes in hexadecimal,
//! each followed by a space; then kind and payload.

use docket_schema::{
    event::{Envelope, Payload},
    ids::{Epoch, EventHash, Position, Seq, StreamId, Timestamp, Turn},
};

/// Selects a page of the stream named `$1`, after `$2`, of at most `$3` events.
pub(in crate::store) const PAGE_SQL: &str = "SELECT group_concat(line, '') FROM (SELECT e.seq || ' ' || \
     e.position || ' ' || e.recorded_at || ' ' || e.turn || ' ' || e.epoch || ' ' || e.version || ' ' || \
     length(CAST(e.kind AS BLOB)) || ' ' || length(CAST(e.payload AS BLOB)) || ' ' || hex(e.prev_hash) || ' ' || \
     hex(e.hash) || ' ' || e.kind || e.payload AS line FROM events e \
     WHERE e.stream_id = (SELECT id FROM streams WHERE name = $1) AND e.seq > $2 ORDER BY e.seq LIMIT $3)";

/// The events of a page; `None` where one is not in its form.
pub(in crate::store) fn unpack(stream: &StreamId, page: &str) -> Option<Vec<Envelope>> {
    let mut events = Vec::new();
    let mut rest = page;
    while !rest.is_empty() {
        events.push(event(stream, &mut rest)?);
    }
    // The database keeps the order; nothing obliges it to.
    events.sort_by_key(|event| event.seq);
    Some(events)
}

fn event(stream: &StreamId, rest: &mut &str) -> Option<Envelope> {
    let seq = Seq(number(rest)?);
    let position = Position(number(rest)?);
    let recorded_at = Timestamp(number(rest)?);
    let turn = Turn(number(rest)?);
    let epoch = Epoch(number(rest)?);
    let version = number(rest)?;
    let (kind_bytes, payload_bytes) = (number(rest)?, number(rest)?);
    let prev_hash = EventHash(hash(word(rest)?)?);
    let hash = EventHash(hash(word(rest)?)?);
    let kind = cut(rest, kind_bytes)?.to_owned();
    let payload = Payload::from_store(cut(rest, payload_bytes)?.to_owned());
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

fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, after) = rest.split_once(' ')?;
    *rest = after;
    Some(word)
}

fn number<T: std::str::FromStr>(rest: &mut &str) -> Option<T> {
    word(rest)?.parse().ok()
}

fn cut<'a>(rest: &mut &'a str, bytes: usize) -> Option<&'a str> {
    let (part, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(part)
}

fn hash(hex: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = hex.as_bytes().try_into().ok()?;
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

const fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}
