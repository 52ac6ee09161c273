//! Structured answers: JSON in what a model says, whatever stands around it. Pure.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::engine::json_schema::find_violations;

/// Text of an answer stays in its event up to this: engines read it to decide.
pub(crate) const ANSWER_INLINE_BYTES_MAX: usize = 64 * 1024;

/// The first JSON object or array of a text: the whole of it, in a fence, or between words.
///
/// # Errors
/// There is none; what a model is told of that.
pub(in crate::engine) fn extract_json(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let starts = text.match_indices(['{', '[']).map(|(at, _)| at);
    let mut first = None;
    for at in starts {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => return Ok(value),
            // The outermost says most of what is wrong.
            Some(Err(error)) => drop(first.get_or_insert(error.to_string())),
            None => {}
        }
        if first.is_some() && at > JSON_SEARCH_BYTES_MAX {
            break;
        }
    }
    Err(first.map_or_else(|| "there is no JSON in it".to_owned(), |error| format!("it is not JSON: {error}")))
}

/// The JSON of an answer that meets its schema, where there is one.
///
/// # Errors
/// There is none, or what of it does not meet the schema; what a model is told of that.
pub(in crate::engine) fn extract_valid_json(said: &str, schema: Option<&Value>) -> Result<Value, String> {
    let value = extract_json(said)?;
    let wrong: Vec<String> = schema
        .map(|schema| find_violations(schema, &value).iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    if wrong.is_empty() { Ok(value) } else { Err(wrong.join("; ")) }
}

/// Whether a text is its JSON and nothing else, but for a fence around it.
pub(in crate::engine) fn is_only_json(text: &str) -> bool {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let inside = inside.map_or(text, |inside| inside.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
    serde_json::from_str::<serde::de::IgnoredAny>(inside).is_ok()
}

/// Bytes of an answer in which the beginning of its JSON is looked for after one that was none.
const JSON_SEARCH_BYTES_MAX: usize = 16 * 1024;

/// The JSON of a text as a `T`.
///
/// # Errors
/// As [`json_in`]; or it is of another shape.
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
