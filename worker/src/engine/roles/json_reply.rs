//! Structured replies: extracts JSON from a model's text, whatever surrounds it. Pure.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::engine::json_schema::find_violations;

/// Reply text up to this size stays in its event, because engines read it to decide.
pub(crate) const ANSWER_INLINE_BYTES_MAX: usize = 64 * 1024;

/// Returns the first JSON object or array of a text: the whole text, in a fence, or between words.
///
/// # Errors
/// There is none; the message is for the model.
pub(in crate::engine) fn extract_json(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let starts = text.match_indices(['{', '[']).map(|(at, _)| at);
    let mut first = None;
    for at in starts {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => return Ok(value),
            // The error of the outermost value says the most.
            Some(Err(error)) => drop(first.get_or_insert(error.to_string())),
            None => {}
        }
        if first.is_some() && at > JSON_SEARCH_BYTES_MAX {
            break;
        }
    }
    Err(first.map_or_else(|| "there is no JSON in it".to_owned(), |error| format!("it is not JSON: {error}")))
}

/// Returns the JSON of a reply, which must match the schema if there is one.
///
/// # Errors
/// There is none, or it violates the schema; the message is for the model.
pub(in crate::engine) fn extract_valid_json(said: &str, schema: Option<&Value>) -> Result<Value, String> {
    let value = extract_json(said)?;
    let wrong: Vec<String> = schema
        .map(|schema| find_violations(schema, &value).iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    if wrong.is_empty() { Ok(value) } else { Err(wrong.join("; ")) }
}

/// Whether a text is only its JSON, except for a fence around it.
pub(in crate::engine) fn is_only_json(text: &str) -> bool {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let inside = inside.map_or(text, |inside| inside.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
    serde_json::from_str::<serde::de::IgnoredAny>(inside).is_ok()
}

/// Bytes of a reply in which another beginning of its JSON is searched after a failed one.
const JSON_SEARCH_BYTES_MAX: usize = 16 * 1024;

/// Parses the JSON of a text as a `T`.
///
/// # Errors
/// The errors of [`extract_json`], or it has another structure.
pub(in crate::engine) fn parse_json_reply<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = extract_json(text)?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_found_inside_surrounding_text() {
        for (text, value) in [
            (r#"{"a": 1}"#, json!({"a": 1})),
            ("Here it is:\n```json\n[\"x\", \"y\"]\n```\nDone.", json!(["x", "y"])),
            ("I did [this] and then {\"ok\": true}", json!({"ok": true})),
            ("[]", json!([])),
        ] {
            assert_eq!(extract_json(text), Ok(value), "{text}");
        }
        assert!(extract_json("no").is_err_and(|why| why.contains("no JSON")));
        assert!(extract_json("{\"a\": ").is_err_and(|why| why.contains("EOF")));
        assert!(
            parse_json_reply::<Vec<String>>("{\"a\": 1}")
                .is_err_and(|why| why.contains("expected a sequence"))
        );
    }
}
