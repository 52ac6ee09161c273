//! One decoded event per line, with long texts inlined. Stable: fields are only ever added.
//!
//! `{"stream":…,"seq":…,"at":…,"turn":…,"epoch":…,"kind":…,"version":…,"payload":{…},"hash":…}`; the payload is
//! the event's own. An object that refers to a stored text (`{"hash":…,"bytes":…}`) also contains the `text`,
//! and `"cut":true` if only its beginning is included.

use docket_schema::{event::Envelope, ids::BlobHash};
use serde_json::{Map, Value, json};

use super::texts::FetchedTexts;

/// Formats the line of an event.
pub(super) fn format_event_line(event: &Envelope, texts: &FetchedTexts) -> Result<String, serde_json::Error> {
    let mut payload: Value = serde_json::from_str(event.payload.as_str())?;
    inline_texts(&mut payload, texts);
    let line = json!({
        "stream": event.stream,
        "seq": event.seq,
        "at": event.recorded_at,
        "turn": event.turn,
        "epoch": event.epoch,
        "kind": event.kind,
        "version": event.version,
        "payload": payload,
        "hash": event.hash,
    });
    Ok(format!("{line}\n"))
}

fn inline_texts(value: &mut Value, texts: &FetchedTexts) {
    match value {
        Value::Object(fields) => match blob_reference(fields).and_then(|hash| texts.get(&hash)) {
            Some(text) => {
                fields.insert("text".to_owned(), text.text.clone().into());
                if text.truncated {
                    fields.insert("cut".to_owned(), true.into());
                }
            }
            None => {
                // A model's arguments and a provider's data can have any shape.
                let own = fields.iter_mut().filter(|(name, _)| !matches!(name.as_str(), "args" | "data"));
                own.for_each(|(_, value)| inline_texts(value, texts));
            }
        },
        Value::Array(values) => values.iter_mut().for_each(|value| inline_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the blob of an object that consists of exactly a hash and a size.
fn blob_reference(fields: &Map<String, Value>) -> Option<BlobHash> {
    let hash = fields.get("hash").filter(|_| fields.len() == 2 && fields.contains_key("bytes"))?;
    hash.as_str()?.parse().ok()
}
