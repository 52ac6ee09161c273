//! The envelope of every event.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::ids::{BlobHash, Epoch, EventHash, ParseIdError, Position, Seq, StreamId, Timestamp, Turn};

/// Maximum size of one event's payload, in bytes. Larger contents go into a blob.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of events in one append: twice the largest batch of tool calls of a turn.
pub const EVENTS_PER_APPEND_MAX: usize = 256;

/// A payload: one JSON value, as the exact text that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload(String);

impl Payload {
    /// Parses a text that must be one JSON value.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(&text)?;
        Ok(Self(text))
    }

    /// Wraps a payload read from the store. It was validated when it was appended and the hash chain reveals
    /// any later change, so it is not parsed again.
    pub fn from_store(text: String) -> Self {
        Self(text)
    }

    /// Serializes `value`.
    ///
    /// # Errors
    ///
    /// Fails if `value` contains a map whose keys are not strings, or if its `Serialize` fails.
    pub fn from_value<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(Self)
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(d).map(|raw| Self(String::from(Box::<str>::from(raw))))
    }
}

impl JsonSchema for Payload {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Payload".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "one JSON value; its exact text is hashed" })
    }
}

/// An event as the writer submits it; the store adds sequence number, time and hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    /// The event's name, such as `RunStarted`.
    pub kind: String,
    /// Version of the payload's format, starting at 1.
    pub version: u16,
    /// The event's turn; 0 outside of turns.
    #[serde(default)]
    pub turn: Turn,
    /// The payload.
    pub payload: Payload,
}

/// An event as recorded in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope {
    /// The event's stream.
    pub stream: StreamId,
    /// Sequence number in the stream.
    pub seq: Seq,
    /// Position in the log. It is not hashed, because an import into another log assigns a new one.
    pub position: Position,
    /// When the coordinator recorded it.
    pub recorded_at: Timestamp,
    /// The event's turn.
    pub turn: Turn,
    /// The epoch it was written under; 0 if it was not written under a lease.
    pub epoch: Epoch,
    /// The event's name.
    pub kind: String,
    /// Version of the payload's format.
    pub version: u16,
    /// The payload.
    pub payload: Payload,
    /// Hash of the previous event; zero for the first event of a stream without a parent.
    pub prev_hash: EventHash,
    /// BLAKE3 hash over all of the above except the position.
    pub hash: EventHash,
}

/// Head of a stream: sequence number and hash of the last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Head {
    /// Sequence number of the last event; 0 for an empty stream.
    pub seq: Seq,
    /// Hash of the last event.
    pub hash: EventHash,
}

impl Head {
    /// Head of an empty stream.
    pub const EMPTY: Self = Self { seq: Seq(0), hash: EventHash::ZERO };
}

/// An event borrowed from the buffer it was read into, for code that walks a log without storing it.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "each field is the one of `Envelope` that has its name")]
pub struct EventRef<'a> {
    pub seq: Seq,
    pub position: Position,
    pub recorded_at: Timestamp,
    pub turn: Turn,
    pub epoch: Epoch,
    pub kind: &'a str,
    pub version: u16,
    pub payload: &'a str,
    pub prev_hash: EventHash,
    pub hash: EventHash,
}

impl EventRef<'_> {
    /// Returns an owned copy of the event.
    pub fn to_envelope(&self, stream: StreamId) -> Envelope {
        Envelope {
            stream,
            seq: self.seq,
            position: self.position,
            recorded_at: self.recorded_at,
            turn: self.turn,
            epoch: self.epoch,
            kind: self.kind.to_owned(),
            version: self.version,
            payload: Payload::from_store(self.payload.to_owned()),
            prev_hash: self.prev_hash,
            hash: self.hash,
        }
    }
}

impl Envelope {
    /// Borrows the event without its stream.
    pub fn as_event_ref(&self) -> EventRef<'_> {
        EventRef {
            seq: self.seq,
            position: self.position,
            recorded_at: self.recorded_at,
            turn: self.turn,
            epoch: self.epoch,
            kind: &self.kind,
            version: self.version,
            payload: self.payload.as_str(),
            prev_hash: self.prev_hash,
            hash: self.hash,
        }
    }

    /// Whether this event is `event` recorded under `epoch`; used to recognize a repeated append.
    pub fn is_same_as(&self, event: &NewEvent, epoch: Epoch) -> bool {
        self.kind == event.kind
            && self.version == event.version
            && self.turn == event.turn
            && self.epoch == epoch
            && self.payload == event.payload
    }
}

/// Finds the text form of blob hashes anywhere in a payload: 64 hexadecimal digits. Garbage collection keeps
/// every blob that a payload might refer to, so that it is correct for unknown events as well.
pub fn find_blob_hashes(text: &str) -> impl Iterator<Item = Result<BlobHash, ParseIdError>> + '_ {
    text.split(|c: char| !c.is_ascii_hexdigit()).filter(|part| part.len() == 64).map(str::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{ChainError, verify_and_advance},
        ids::{QueueName, RunId},
    };

    fn sample_chain(length: u64) -> Vec<Envelope> {
        let mut head = Head::EMPTY;
        let mut events = Vec::new();
        for n in 1..=length {
            let mut event = Envelope {
                stream: StreamId::Queue(QueueName::default()),
                seq: Seq(n),
                position: Position(n * 7),
                recorded_at: Timestamp(1_700_000_000_000_000),
                turn: Turn(1),
                epoch: Epoch(2),
                kind: "Told".to_owned(),
                version: 1,
                payload: Payload::parse(format!(r#"{{"n": {n}}}"#)).expect("json"),
                prev_hash: head.hash,
                hash: EventHash::ZERO,
            };
            event.hash = event.compute_hash();
            head = verify_and_advance(head, &event).expect("follows");
            events.push(event);
        }
        events
    }

    fn broken_at(events: &[Envelope]) -> Option<Seq> {
        let mut head = Head::EMPTY;
        for event in events {
            match verify_and_advance(head, event) {
                Ok(next) => head = next,
                Err(ChainError::Gap { found, .. }) => return Some(found),
                Err(ChainError::Broken { seq, .. } | ChainError::Altered { seq, .. }) => return Some(seq),
            }
        }
        None
    }

    #[test]
    fn altering_any_field_except_the_position_breaks_the_chain() {
        type Alteration = (&'static str, fn(&mut Envelope));
        let alterations: [Alteration; 9] = [
            ("stream", |e| e.stream = StreamId::Run(RunId(uuid::Uuid::nil()))),
            ("recorded_at", |e| e.recorded_at = e.recorded_at.plus_ms(1)),
            ("turn", |e| e.turn = Turn(9)),
            ("epoch", |e| e.epoch = Epoch(9)),
            ("kind", |e| e.kind.push('x')),
            ("version", |e| e.version = 2),
            ("payload", |e| e.payload = Payload::from_store(r#"{"n":2}"#.to_owned())),
            ("hash", |e| e.hash = EventHash::ZERO),
            ("prev_hash", |e| e.prev_hash = EventHash::ZERO),
        ];
        for (field, alter) in alterations {
            let mut events = sample_chain(3);
            alter(&mut events[1]);
            assert_eq!(broken_at(&events), Some(Seq(2)), "altered {field}");
        }
        let mut events = sample_chain(3);
        events[1].position = Position(99);
        assert_eq!(broken_at(&events), None);
        events.remove(1);
        assert_eq!(broken_at(&events), Some(Seq(3)));
    }

    #[test]
    fn payload_text_round_trips_byte_for_byte() {
        let event = &sample_chain(1)[0];
        let json = serde_json::to_string(event).expect("serializes");
        assert!(json.contains(r#""payload":{"n": 1}"#), "{json}");
        assert_eq!(&serde_json::from_str::<Envelope>(&json).expect("reads back"), event);
    }

    #[test]
    fn blob_hashes_are_found_anywhere_in_a_payload() {
        let hash = BlobHash::hash_bytes(b"x");
        let found: Vec<_> =
            find_blob_hashes(&format!(r#"{{"a":"{hash}","b":"deadbeef"}}"#)).flatten().collect();
        assert_eq!(found, [hash]);
    }
}
