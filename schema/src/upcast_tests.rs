//! Upcasting, tested with an artificial family of events because no real event has an older version yet. A
//! payload of an old version is decoded as the new one; its bytes and its hash do not change.

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    event::{DecodeError, Envelope, Head, Payload, TypedEvent as _, typed_events, verify_and_advance},
    ids::{Epoch, EventHash, Position, QueueName, Seq, StreamId, Timestamp, Turn},
};

typed_events! {
    /// Events that docket does not use.
    #[expect(clippy::large_enum_variant, reason = "as the families it stands for")]
    pub enum ShelfEvent {
        ShelfMoved 3 { 1 => ShelfMovedV1, 2 => ShelfMovedV2 },
        ShelfEmptied 1,
    }
}

/// The artificial first version: without an origin, and with a single note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShelfMovedV1 {
    to: u32,
    note: String,
}

/// The second version: with several notes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShelfMovedV2 {
    to: u32,
    notes: Vec<String>,
}

/// As large as payloads of runs are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "[u64; 2]", into = "[u64; 2]")]
pub struct Marks([u64; 64]);

impl Default for Marks {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl From<[u64; 2]> for Marks {
    fn from([first, second]: [u64; 2]) -> Self {
        let mut marks = [0; 64];
        (marks[0], marks[1]) = (first, second);
        Self(marks)
    }
}

impl From<Marks> for [u64; 2] {
    fn from(Marks(marks): Marks) -> Self {
        [marks[0], marks[1]]
    }
}

/// The current version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShelfMoved {
    from: Option<u32>,
    to: u32,
    notes: Vec<String>,
    #[serde(default)]
    marks: Marks,
}

/// An event with a single version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShelfEmptied {}

impl From<ShelfMovedV1> for ShelfMoved {
    fn from(old: ShelfMovedV1) -> Self {
        Self { from: None, to: old.to, notes: vec![old.note], marks: Marks::default() }
    }
}

impl From<ShelfMovedV2> for ShelfMoved {
    fn from(old: ShelfMovedV2) -> Self {
        Self { from: None, to: old.to, notes: old.notes, marks: Marks::default() }
    }
}

fn noted() -> Envelope {
    Envelope {
        stream: StreamId::Queue(QueueName::default()),
        seq: Seq(1),
        position: Position(1),
        recorded_at: Timestamp(1_700_000_000_000_000),
        turn: Turn(1),
        epoch: Epoch(2),
        kind: "ShelfMoved".to_owned(),
        version: 1,
        payload: Payload::from_store("{}".to_owned()),
        prev_hash: EventHash::ZERO,
        hash: EventHash::ZERO,
    }
}

#[test]
fn old_version_is_read_as_the_new_one_and_keeps_bytes_and_hash() {
    let moved = |notes: &[&str]| {
        let notes = notes.iter().map(ToString::to_string).collect();
        ShelfEvent::from(ShelfMoved { from: None, to: 7, notes, marks: Marks::default() })
    };
    // Whitespace and field order are the old writer's: rewriting the payload would lose them.
    let cases = [
        (1, r#"{ "note": "up", "to": 7 }"#, moved(&["up"])),
        (2, r#"{"notes":["up","left"],"to":7}"#, moved(&["up", "left"])),
        (3, r#"{"from":null,"to":7,"notes":[]}"#, moved(&[])),
    ];
    let mut head = Head::EMPTY;
    for (version, stored, read) in cases {
        let mut event = noted();
        event.seq = head.seq.next();
        (event.kind, event.version, event.prev_hash) = ("ShelfMoved".to_owned(), version, head.hash);
        event.payload = Payload::parse(stored.to_owned()).expect("json");
        event.hash = event.compute_hash();
        head = verify_and_advance(head, &event).expect("follows");
        let carried = serde_json::to_string(&event).expect("json");
        let event: Envelope = serde_json::from_str(&carried).expect("json");
        assert_eq!(
            ShelfEvent::decode(&event.kind, event.version, event.payload.as_str()).expect("reads"),
            read
        );
        assert_eq!((event.payload.as_str(), event.compute_hash()), (stored, event.hash));
    }
    let now = moved(&["x"]).encode(Turn(1));
    assert_eq!(
        (now.version, now.payload.as_str()),
        (3, r#"{"from":null,"to":7,"notes":["x"],"marks":[0,0]}"#)
    );
    assert_eq!(
        ShelfEvent::READ,
        [("ShelfMoved", 3), ("ShelfMoved", 1), ("ShelfMoved", 2), ("ShelfEmptied", 1)]
    );
    let schemas = ShelfEvent::schemas(&mut SchemaGenerator::default());
    assert_eq!(
        schemas.iter().map(|(kind, version, _)| (*kind, *version)).collect::<Vec<_>>(),
        ShelfEvent::READ
    );
}

#[test]
fn event_of_a_newer_build_is_reported_with_a_remedy() {
    let unknown = |kind, version| ShelfEvent::decode(kind, version, "{}").expect_err("unknown").to_string();
    let text = unknown("ShelfMoved", 4);
    assert!(text.contains("`ShelfMoved` version 4") && text.contains("newer"), "{text}");
    assert!(unknown("ShelfBurnt", 1).contains("`ShelfBurnt` version 1"));
    let wrong = ShelfEvent::decode("ShelfMoved", 1, r#"{"to":"left"}"#).expect_err("another shape");
    assert!(matches!(wrong, DecodeError::Shape { version: 1, .. }), "{wrong}");
}
