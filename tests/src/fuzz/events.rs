//! Fuzzes events as they are stored and sent.

use docket_schema::{
    event::{Envelope, NewEvent, TypedEvent},
    run::RunEvent,
    system::SystemEvent,
    task::TaskEvent,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{lossy_text, split_input};

/// The input is kind, version and payload; also parsed as a whole envelope.
pub(super) fn fuzz_event(input: &[u8]) {
    let pieces = split_input(input);
    if let [kind, version, payload, ..] = &pieces[..] {
        let (kind, version) = (lossy_text(kind), lossy_text(version).trim().parse().unwrap_or(1));
        check_event_round_trip::<RunEvent>(kind.trim(), version, &lossy_text(payload));
        check_event_round_trip::<TaskEvent>(kind.trim(), version, &lossy_text(payload));
        check_event_round_trip::<SystemEvent>(kind.trim(), version, &lossy_text(payload));
    }
    check_json_round_trip::<Envelope>(input);
    check_json_round_trip::<NewEvent>(input);
}

/// Checks that a decoded event, encoded again, decodes to the same event.
fn check_event_round_trip<T: TypedEvent + PartialEq + std::fmt::Debug>(
    kind: &str,
    version: u16,
    payload: &str,
) {
    let Ok(event) = T::decode(kind, version, payload) else { return };
    let new = event.encode(docket_schema::ids::Turn(1));
    let again =
        T::decode(&new.kind, new.version, new.payload.as_str()).expect("what was written can be read");
    assert_eq!(event, again);
}

fn check_json_round_trip<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("again"), written);
}
