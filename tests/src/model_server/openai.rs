//! OpenAI's Chat Completions wire format: refusals, and a response as a stream of chunks.

use docket_schema::message::StopReason;
use docket_worker::model::{FaultKind, ModelReply, ReplyPart, ScriptedFault};
use serde_json::{Value, json};

use super::reply::{RefusalReply, StreamEvents, split_text};

pub(super) fn refusal(status: u16, message: &str) -> RefusalReply {
    let (kind, code) = match status {
        400 => ("invalid_request_error", Value::Null),
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        _ => ("server_error", Value::Null),
    };
    refusal_with_code(status, kind, code, message)
}

fn refusal_with_code(status: u16, kind: &str, code: Value, message: &str) -> RefusalReply {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    RefusalReply { status, body, retry_after_ms: None }
}

/// Returns the refusal for faults reported by status; `None` for all others.
pub(super) fn fault_refusal(fault: ScriptedFault) -> Option<RefusalReply> {
    let refusal = match fault.kind {
        FaultKind::RateLimited => refusal(429, "too many requests for this organization"),
        FaultKind::Overloaded => refusal(503, "the engine is overloaded"),
        FaultKind::ServerError => refusal(500, "the server had an error"),
        FaultKind::SpendLimit => refusal_with_code(
            429,
            "insufficient_quota",
            json!("insufficient_quota"),
            "the account has no quota left",
        ),
        FaultKind::Unauthorized => refusal(401, "no such API key"),
        FaultKind::Forbidden => refusal(403, "the project has no access to this model"),
        FaultKind::ContextTooLong => refusal_with_code(
            400,
            "invalid_request_error",
            json!("context_length_exceeded"),
            "reduce the messages",
        ),
        FaultKind::Reset
        | FaultKind::CutStream
        | FaultKind::ErrorInStream
        | FaultKind::MalformedArguments
        | FaultKind::UnknownTool
        | FaultKind::Empty
        | FaultKind::OutputLimit
        | FaultKind::Unstreamed
        | FaultKind::Uncounted
        | FaultKind::Refusal
        | FaultKind::SlowFirstByte
        | FaultKind::Stall => return None,
    };
    Some(RefusalReply { retry_after_ms: fault.retry_after_ms, ..refusal })
}

/// Returns the response as one object, for requests without streaming.
pub(super) fn full_response(answer: &ModelReply, model: &str, id: &str) -> Value {
    let mut message = json!({"role": "assistant", "content": null, "refusal": null});
    let mut calls = Vec::new();
    for part in &answer.parts {
        match part {
            ReplyPart::Text(text) => message["content"] = json!(text),
            ReplyPart::Thinking { data, .. } => message["reasoning_content"] = data["thinking"].clone(),
            ReplyPart::ToolUse { provider_id, name, args_json } => calls.push(json!({"id": provider_id,
                "type": "function", "function": {"name": name, "arguments": args_json}})),
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let usage = answer.usage;
    let prompt = usage.input_tokens + usage.cache_read_tokens;
    json!({"id": id, "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": usage.output_tokens,
            "total_tokens": prompt + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens}}})
}

fn finish_reason(answer: &ModelReply) -> &str {
    match &answer.stop_reason {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Other(other) => other,
    }
}

pub(super) fn stream_events(answer: &ModelReply, model: &str, id: &str) -> StreamEvents {
    let chunk = |delta: Value, finish: Value| {
        format_event(&json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}], "usage": null}))
    };
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    let mut calls = 0;
    for part in &answer.parts {
        match part {
            ReplyPart::Text(text) => {
                deltas.extend(split_text(text).into_iter().map(|piece| json!({"content": piece})))
            }
            ReplyPart::Thinking { data, .. } => {
                let text = data["thinking"].as_str().unwrap_or_default();
                deltas.extend(split_text(text).into_iter().map(|piece| json!({"reasoning_content": piece})));
            }
            ReplyPart::ToolUse { provider_id, name, args_json } => {
                deltas.push(json!({"tool_calls": [{"index": calls, "id": provider_id, "type": "function",
                    "function": {"name": name, "arguments": ""}}]}));
                let piece =
                    |piece| json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]});
                deltas.extend(split_text(args_json).into_iter().map(piece));
                calls += 1;
            }
        }
    }
    let reason = finish_reason(answer);
    let usage = answer.usage;
    let prompt = usage.input_tokens + usage.cache_read_tokens;
    let stop = vec![
        chunk(json!({}), json!(reason)),
        format_event(
            &json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [],
            "usage": {"prompt_tokens": prompt, "completion_tokens": usage.output_tokens,
                "total_tokens": prompt + usage.output_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens}}}),
        ),
        "data: [DONE]\n\n".to_owned(),
    ];
    let error = refusal_with_code(503, "overloaded_error", Value::Null, "the engine is overloaded").body;
    StreamEvents {
        before_stop: deltas.into_iter().map(|delta| chunk(delta, Value::Null)).collect(),
        stop,
        error: format_event(&error),
    }
}

fn format_event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
