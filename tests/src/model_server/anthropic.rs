//! Anthropic's wire format: refusals, and a response as a stream of events.

use docket_schema::message::StopReason;
use docket_worker::model::{FaultKind, ModelReply, ReplyPart, ScriptedFault};
use serde_json::{Value, json};

use super::reply::{RefusalReply, StreamEvents, split_text};

pub(super) fn refusal(status: u16, message: &str) -> RefusalReply {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let body = json!({"type": "error", "error": {"type": kind, "message": message}});
    RefusalReply { status, body, retry_after_ms: None }
}

/// Returns the refusal for faults reported by status; `None` for all others.
pub(super) fn fault_refusal(fault: ScriptedFault) -> Option<RefusalReply> {
    let refusal = match fault.kind {
        FaultKind::RateLimited => refusal(429, "too many requests for this organization"),
        FaultKind::Overloaded => refusal(529, "Overloaded"),
        FaultKind::ServerError => refusal(500, "internal error"),
        FaultKind::SpendLimit => refusal(400, "your credit balance is too low to use the API"),
        FaultKind::Unauthorized => refusal(401, "invalid x-api-key"),
        FaultKind::Forbidden => refusal(403, "your API key may not use this model"),
        FaultKind::ContextTooLong => refusal(400, "prompt is too long: 300000 tokens > 200000 maximum"),
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
    let content = answer.parts.iter().map(|part| match part {
        ReplyPart::Text(text) => json!({"type": "text", "text": text}),
        ReplyPart::Thinking { data, .. } => data.clone(),
        ReplyPart::ToolUse { provider_id, name, args_json } => {
            let input: Value = serde_json::from_str(args_json).unwrap_or_default();
            json!({"type": "tool_use", "id": format!("toolu_{provider_id}"), "name": name, "input": input})
        }
    });
    let usage = answer.usage;
    json!({"id": id, "type": "message", "role": "assistant", "model": model,
        "content": content.collect::<Vec<_>>(), "stop_reason": stop_reason(answer), "stop_sequence": null,
        "usage": {"input_tokens": usage.input_tokens, "cache_read_input_tokens": usage.cache_read_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens, "output_tokens": usage.output_tokens}})
}

fn stop_reason(answer: &ModelReply) -> &str {
    match &answer.stop_reason {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::StopSequence => "stop_sequence",
        StopReason::Refusal => "refusal",
        StopReason::Other(other) => other,
    }
}

pub(super) fn stream_events(answer: &ModelReply, model: &str, id: &str) -> StreamEvents {
    let usage = answer.usage;
    let mut before_stop = vec![format_event(&json!({"type": "message_start", "message": {
        "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": usage.input_tokens, "cache_read_input_tokens": usage.cache_read_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens, "output_tokens": 1}}}))];
    before_stop.push(format_event(&json!({"type": "ping"})));
    for (index, part) in answer.parts.iter().enumerate() {
        let (block, deltas) = content_block(part);
        before_stop.push(format_event(
            &json!({"type": "content_block_start", "index": index, "content_block": block}),
        ));
        let delta =
            |delta| format_event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        before_stop.extend(deltas.into_iter().map(delta));
        before_stop.push(format_event(&json!({"type": "content_block_stop", "index": index})));
    }
    let reason = stop_reason(answer);
    let stop = vec![
        format_event(
            &json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": usage.output_tokens}}),
        ),
        format_event(&json!({"type": "message_stop"})),
    ];
    StreamEvents { before_stop, stop, error: format_event(&refusal(529, "Overloaded").body) }
}

/// Returns the start of a content block, and its deltas.
fn content_block(part: &ReplyPart) -> (Value, Vec<Value>) {
    match part {
        ReplyPart::Text(text) => {
            let delta = |piece| json!({"type": "text_delta", "text": piece});
            (json!({"type": "text", "text": ""}), split_text(text).into_iter().map(delta).collect())
        }
        ReplyPart::Thinking { data, .. } => {
            let text = data["thinking"].as_str().unwrap_or_default();
            let delta = |piece| json!({"type": "thinking_delta", "thinking": piece});
            let signature = json!({"type": "signature_delta", "signature": data["signature"]});
            let deltas = split_text(text).into_iter().map(delta).chain([signature]).collect();
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }
        ReplyPart::ToolUse { provider_id, name, args_json } => {
            let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
            let block =
                json!({"type": "tool_use", "id": format!("toolu_{provider_id}"), "name": name, "input": {}});
            (block, split_text(args_json).into_iter().map(delta).collect())
        }
    }
}

fn format_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
