//! Classifies a provider's error response (status, headers, body, or an error event within the stream) as a
//! [`ModelError`]. Pure. Providers and compatible servers use different statuses but similar messages, so
//! both are examined. The spending limit is checked first, because it must never be retried.

use serde_json::Value;

use super::{
    Secret,
    error::{ERROR_BODY_BYTES_MAX, ModelError},
};

/// The relevant parts of an error response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProviderErrorResponse<'a> {
    /// The HTTP status; 200 for an error event within a stream.
    pub(crate) status: u16,
    /// From the headers; see [`retry_after_header_ms`].
    pub(crate) retry_after_ms: Option<u64>,
    /// The body, or the event's data.
    pub(crate) body: &'a [u8],
}

const SPEND_LIMIT_WORDS: [&str; 9] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_error",
    "billing_not_active",
    "credit balance",
    "exceeded your current quota",
    "insufficient credits",
    "spend limit",
    "api usage limits",
];
const CONTEXT_LENGTH_WORDS: [&str; 7] = [
    "context_length_exceeded",
    "prompt is too long",
    "exceed context limit",
    "exceed_context_size",
    "exceeds the available context size",
    "maximum context length",
    "request_too_large",
];
/// Phrases that by themselves mean that the key was rejected.
const KEY_REFUSED_WORDS: [&str; 3] = ["invalid_api_key", "authentication_error", "invalid x-api-key"];
/// Terms for the key, and problems with it: one of each together means that the key was rejected.
const KEY_NAMES: [&str; 4] = ["api key", "api_key", "api-key", "credential"];
const KEY_FLAWS: [&str; 9] =
    ["invalid", "incorrect", "not valid", "revoked", "expired", "disabled", "missing", "leaked", "unknown"];

/// Classifies an error response.
pub(crate) fn classify_error(refusal: ProviderErrorResponse<'_>, key: Option<&Secret>) -> ModelError {
    let ProviderErrorResponse { status, body, .. } = refusal;
    let retry_after_ms = refusal.retry_after_ms.or_else(|| retry_delay_in_body_ms(body));
    let said = error_text(body);
    // Examined before the key is redacted: redacting a short key would change the provider's message.
    let lower = truncate_message(&said).to_lowercase();
    let text = printable_message(&said, key);
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // A per-minute limit may also be described in terms of the plan; a limit that allows a retry soon is not
    // a spending limit.
    let soon = status == 429 && retry_after_ms.is_some() && !lower.contains("insufficient_quota");
    // Responses with other statuses may quote the request.
    let tells = matches!(status, 200..=299 | 400 | 403 | 429);
    if status == 402 || (tells && !soon && (says(&SPEND_LIMIT_WORDS) || says(&["spending limit"]))) {
        return ModelError::SpendLimit { message: text };
    }
    // A request larger than the per-minute limit can never succeed.
    let too_large = status == 429 && says(&["request too large"]);
    if status == 413 || too_large || says(&CONTEXT_LENGTH_WORDS) {
        return ModelError::ContextTooLong { message: text };
    }
    match status {
        429 => ModelError::RateLimited { retry_after_ms },
        503 | 529 => ModelError::Overloaded { retry_after_ms },
        500..=599 | 408 | 409 | 425 => ModelError::Server { status, retry_after_ms },
        401 => ModelError::Unauthorized { message: text },
        403 => classify_forbidden(&lower, text),
        200..=299 => classify_stream_error(&lower, text, retry_after_ms),
        300..=399 => ModelError::Protocol { detail: format!("status {status}: redirects are not followed") },
        _ => ModelError::InvalidRequest { message: text },
    }
}

/// Classifies status 403. It concerns the key only if the message says so: the same status denies a valid key
/// a model or a region. A task's choice of model must not be reported as a fault of the key, which would
/// affect all tasks of the provider.
fn classify_forbidden(lower: &str, message: String) -> ModelError {
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let is_about_key = says(&KEY_REFUSED_WORDS) || (says(&KEY_NAMES) && says(&KEY_FLAWS));
    if is_about_key && !says(&["model"]) {
        ModelError::Unauthorized { message }
    } else {
        ModelError::Forbidden { message }
    }
}

/// Classifies an error that arrived after status 200 and has only its message.
fn classify_stream_error(lower: &str, text: String, retry_after_ms: Option<u64>) -> ModelError {
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["overloaded", "slow_down"]) {
        ModelError::Overloaded { retry_after_ms }
    } else if says(&["rate_limit", "rate limit", "too many requests"]) {
        ModelError::RateLimited { retry_after_ms }
    } else if says(&["permission_error"]) || says(&KEY_REFUSED_WORDS) {
        classify_forbidden(lower, text)
    } else if says(&["invalid_request", "not_found_error", "invalid_prompt"]) {
        ModelError::InvalidRequest { message: text }
    } else {
        ModelError::Server { status: 500, retry_after_ms }
    }
}

/// Extracts an error body as one line: type, code and message if it is JSON, otherwise the text.
fn error_text(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => json_error_text(&value),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the message in a form that may be stored: key redacted, length limited.
fn printable_message(said: &str, key: Option<&Secret>) -> String {
    let struck = key.map_or_else(|| said.to_owned(), |key| key.redact_from(said));
    super::visible_text::escape_hidden_chars(truncate_message(&struck)).into_owned()
}

/// Truncates the message to [`ERROR_BODY_BYTES_MAX`].
fn truncate_message(line: &str) -> &str {
    let mut end = line.len().min(ERROR_BODY_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// Returns the delay that Google's servers put into the body, such as `"retryDelay": "17s"`.
fn retry_delay_in_body_ms(body: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let details = unwrap_error_list(&value)["error"]["details"].as_array()?;
    let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    parse_decimal_ms(delay.strip_suffix('s')?, 1000)
}

/// Google's servers send an error as the only item of a list.
fn unwrap_error_list(value: &Value) -> &Value {
    value.as_array().and_then(|items| items.first()).unwrap_or(value)
}

fn json_error_text(value: &Value) -> String {
    let value = unwrap_error_list(value);
    let error = match value.get("error") {
        Some(Value::String(text)) => return text.clone(),
        Some(error) => error,
        None => value,
    };
    let mut words: Vec<String> = Vec::new();
    for field in ["type", "code", "message", "detail"] {
        match error.get(field) {
            Some(Value::String(word)) if !words.contains(word) => words.push(word.clone()),
            Some(Value::Number(number)) => words.push(number.to_string()),
            Some(_) | None => {}
        }
    }
    if words.is_empty() { value.to_string() } else { words.join(": ") }
}

/// Returns the delay that a provider requests, in milliseconds: from `retry-after-ms`, or from `retry-after`
/// in seconds (integer or not) or as a date. A date is compared with the server's own `date` header, so that
/// the local clock does not matter.
pub(crate) fn retry_after_header_ms(header: impl Fn(&str) -> Option<String>) -> Option<u64> {
    if let Some(ms) = header("retry-after-ms").and_then(|text| parse_decimal_ms(&text, 1)) {
        return Some(ms);
    }
    let text = header("retry-after")?;
    if let Some(ms) = parse_decimal_ms(&text, 1000) {
        return Some(ms);
    }
    let until = chrono::DateTime::parse_from_rfc2822(text.trim()).ok()?;
    let sent = chrono::DateTime::parse_from_rfc2822(header("date")?.trim()).ok()?;
    Some(u64::try_from((until - sent).num_milliseconds()).unwrap_or(0))
}

fn parse_decimal_ms(text: &str, unit_ms: u32) -> Option<u64> {
    let number: f64 = text.trim().parse().ok()?;
    // A saturating cast: an absurdly long delay stays absurdly long, and the retry gives up on it.
    (number >= 0.0).then(|| (number * f64::from(unit_ms)).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_kind(status: u16, body: &str) -> &'static str {
        classify_error(ProviderErrorResponse { status, retry_after_ms: Some(7), body: body.as_bytes() }, None)
            .kind()
    }

    #[test]
    fn provider_statuses_and_words_are_classified() {
        let anthropic = |kind: &str, message: &str| {
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
        };
        let openai = |code: &str| format!(r#"{{"error":{{"message":"m","type":"t","code":"{code}"}}}}"#);
        for (status, body, expected) in [
            (429, anthropic("rate_limit_error", "slow down"), "rate_limited"),
            (429, openai("rate_limit_exceeded"), "rate_limited"),
            (429, openai("insufficient_quota"), "spend_limit"),
            (429, r#"{"error":{"message":"You exceeded your current quota"}}"#.to_owned(), "rate_limited"),
            (422, r#"{"detail":[{"input":"insufficient credits"}]}"#.to_owned(), "invalid_request"),
            (
                429,
                openai("x").replace("\"m\"", "\"Request too large for gpt-9 on tokens per min\""),
                "context_too_long",
            ),
            (400, anthropic("invalid_request_error", "Your credit balance is too low"), "spend_limit"),
            (402, anthropic("billing_error", "pay"), "spend_limit"),
            (403, anthropic("permission_error", "monthly spend limit"), "spend_limit"),
            (403, anthropic("permission_error", "no"), "forbidden"),
            (403, String::new(), "forbidden"),
            (
                403,
                anthropic("permission_error", "Your API key does not have permission to use it"),
                "forbidden",
            ),
            (403, openai("unsupported_country_region_territory"), "forbidden"),
            (403, anthropic("permission_error", "no access to model invalid_api_key"), "forbidden"),
            (403, openai("invalid_api_key"), "unauthorized"),
            (403, r#"{"error":{"message":"The API key was revoked"}}"#.to_owned(), "unauthorized"),
            (401, openai("model_not_found"), "unauthorized"),
            (200, anthropic("permission_error", "no"), "forbidden"),
            (200, anthropic("authentication_error", "no"), "unauthorized"),
            (401, openai("invalid_api_key"), "unauthorized"),
            (400, anthropic("invalid_request_error", "prompt is too long: 9 > 8"), "context_too_long"),
            (400, openai("context_length_exceeded"), "context_too_long"),
            (413, String::new(), "context_too_long"),
            (400, anthropic("invalid_request_error", "messages: empty"), "invalid_request"),
            (404, openai("model_not_found"), "invalid_request"),
            (500, anthropic("api_error", "x"), "server"),
            (502, "<html>bad gateway</html>".to_owned(), "server"),
            (503, String::new(), "overloaded"),
            (529, anthropic("overloaded_error", "x"), "overloaded"),
            (408, String::new(), "server"),
            (302, String::new(), "protocol"),
            (200, anthropic("overloaded_error", "x"), "overloaded"),
            (200, anthropic("api_error", "x"), "server"),
            (200, openai("insufficient_quota"), "spend_limit"),
            (
                200,
                r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#.to_owned(),
                "rate_limited",
            ),
            (200, r#"{"error":{"code":"server_is_overloaded","message":"m"}}"#.to_owned(), "overloaded"),
            (200, r#"{"error":{"code":"slow_down","message":"m"}}"#.to_owned(), "overloaded"),
            (200, r#"{"error":{"code":"server_error","message":"m"}}"#.to_owned(), "server"),
            (200, r#"{"error":{"code":"invalid_prompt","message":"m"}}"#.to_owned(), "invalid_request"),
            (
                200,
                r#"{"error":{"code":"context_length_exceeded","message":"m"}}"#.to_owned(),
                "context_too_long",
            ),
        ] {
            assert_eq!(error_kind(status, &body), expected, "{status} {body}");
        }
    }

    #[test]
    fn error_in_a_list_is_classified_with_its_delay() {
        let body = r#"[{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED",
            "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"17.5s"}]}}]"#;
        let error = classify_error(
            ProviderErrorResponse { status: 429, retry_after_ms: None, body: body.as_bytes() },
            None,
        );
        assert!(matches!(error, ModelError::RateLimited { retry_after_ms: Some(17_500) }), "{error:?}");
        let body = body.replace("17.5s", "soon");
        let error = classify_error(
            ProviderErrorResponse { status: 429, retry_after_ms: None, body: body.as_bytes() },
            None,
        );
        assert!(
            matches!(&error, ModelError::SpendLimit { message } if message.contains("current quota")),
            "{error:?}"
        );
    }

    #[test]
    fn messages_are_one_line_truncated_and_without_the_key() {
        let key = Secret::new("sk-12345").expect("a key");
        let body = format!("wrong key\nsk-12345 {}", "ä".repeat(3000));
        let error = classify_error(
            ProviderErrorResponse { status: 401, retry_after_ms: None, body: body.as_bytes() },
            Some(&key),
        );
        let ModelError::Unauthorized { message } = error else { panic!("{error}") };
        assert!(message.starts_with("wrong key [secret] ää"));
        assert!((ERROR_BODY_BYTES_MAX - 1..=ERROR_BODY_BYTES_MAX).contains(&message.len()));
    }

    #[test]
    fn error_is_classified_before_the_key_is_redacted() {
        for key in ["x", "context", "context_length_exceeded", "insufficient_quota"] {
            let key = Secret::new(key).expect("a key");
            for (code, kind) in
                [("context_length_exceeded", "context_too_long"), ("insufficient_quota", "spend_limit")]
            {
                let body = format!(r#"{{"error":{{"message":"m","type":"t","code":"{code}"}}}}"#);
                let refusal =
                    ProviderErrorResponse { status: 400, retry_after_ms: None, body: body.as_bytes() };
                assert_eq!(classify_error(refusal, Some(&key)).kind(), kind, "{key}");
            }
        }
    }

    #[test]
    fn all_forms_of_retry_after_are_parsed() {
        let wait = |pairs: &[(&str, &str)]| {
            retry_after_header_ms(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "120")]), Some(120));
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:28:09 GMT"), date]), Some(9000));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), date]), Some(0));
        assert_eq!(wait(&[("retry-after", "soon")]), None);
        assert_eq!(wait(&[("retry-after", "-1"), date]), None);
        assert_eq!(wait(&[]), None);
    }
}
