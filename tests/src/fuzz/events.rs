//! Events as they are stored and sent.

use docket_schema::{
    event::{Envelope, NewEvent, TypedEvent},
    run::RunEvent,
    system::SystemEvent,
    task::TaskEvent,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{pieces, text};

/// Kind, version, payload; and the whole of it as an envelope.
pub(super) fn event(input: &[u8]) {
    let pieces = pieces(input);
    if let [kind, version, payload, ..] = &pieces[..] {
        let (kind, version) = (text(kind), text(version).trim().parse().unwrap_or(1));
        decoded::<RunEvent>(kind.trim(), version, &text(payload));
        decoded::<TaskEvent>(kind.trim(), version, &text(payload));
        decoded::<SystemEvent>(kind.trim(), version, &text(payload));
    }
    read::<Envelope>(input);
    read::<NewEvent>(input);
}

/// What is understood is written again, and understood as the same.
fn decoded<T: TypedEvent + PartialEq + std::fmt::Debug>(kind: &str, version: u16, payload: &str) {
    let Ok(event) = T::decode(kind, version, payload) else { return };
    let new = event.encode(docket_schema::ids::Turn(1));
    let again =
        T::decode(&new.kind, new.version, new.payload.as_str()).expect("what was written can be read");
    assert_eq!(event, again);
}

fn read<T: DeserializeOwned + Serialize>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("again"), written);
}
