//! Calls whose arguments are not a JSON object, or were dropped: they are not run, and the model gets the reason.

/// Returns the message for a call whose arguments were not an object or were dropped (see
/// [`crate::run::model_calls::model_answer`]).
pub(in crate::run) fn malformed_call_message(tool: &str, text: &str) -> String {
    if text.starts_with(TRUNCATED_PREFIX) || text.contains(TOO_LARGE_MARK) {
        return format!("The call of {tool} was not run: {text}");
    }
    let why = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => "they are JSON, and no object".to_owned(),
        Err(error) => error.to_string(),
    };
    let shown: String = text.chars().take(400).collect();
    format!(
        "The arguments of {tool} are not a JSON object ({why}). They were: {shown}\nCall it again with one JSON object."
    )
}

/// Prefix of the message for a call cut off by the output limit, and a part of the one for a call that is too large.
pub(in crate::run) const TRUNCATED_PREFIX: &str = "cut at the limit of";
pub(in crate::run) const TOO_LARGE_MARK: &str = "bytes, more than a call may have";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_arguments_are_explained() {
        for (text, words) in [
            ("{\"a\": 1,}", "trailing comma at line 1 column 9"),
            ("{'a': 1}", "key must be a string"),
            ("[1]", "they are JSON, and no object"),
            ("{\"a\": \"x\ny\"}", "control character"),
        ] {
            let told = malformed_call_message("edit_file", text);
            assert!(told.contains(words) && told.contains(text), "{told}");
        }
        let told = malformed_call_message(
            "create_file",
            "cut at the limit of 8192 tokens for one answer; do it in smaller parts: {",
        );
        assert!(told.starts_with("The call of create_file was not run: cut at the limit"), "{told}");
    }
}
