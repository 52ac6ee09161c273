//! OpenAI's Responses wire format: a response as a stream of events. Refusals are those of Chat
//! Completions.

use docket_schema::message::StopReason;
use docket_worker::model::{ModelReply, ReplyPart};
use serde_json::{Value, json};

use super::reply::{StreamEvents, split_text};

/// Returns the response as one object, for requests without streaming; also the content of the last event of
/// a stream.
pub(super) fn full_response(answer: &ModelReply, model: &str, id: &str) -> Value {
    let StreamEvents { stop, .. } = stream_events(answer, model, id);
    let data = stop.last().and_then(|event| event.split_once("data: ")).map_or("null", |(_, data)| data);
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    event["response"].clone()
}

pub(super) fn stream_events(answer: &ModelReply, model: &str, id: &str) -> StreamEvents {
    let mut sequence = 0;
    let mut event = |mut data: Value| {
        data["sequence_number"] = json!(sequence);
        sequence += 1;
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    let response = |status: &str, more: Value| {
        let mut response = json!({"id": id, "object": "response", "created_at": 0, "model": model,
            "status": status, "error": null, "incomplete_details": null, "output": [], "usage": null});
        for (key, value) in more.as_object().into_iter().flatten() {
            response[key] = value.clone();
        }
        response
    };
    let begun = response("in_progress", json!({}));
    let mut before_stop = vec![
        event(json!({"type": "response.created", "response": begun})),
        event(json!({"type": "response.in_progress", "response": begun})),
    ];
    let mut output = Vec::new();
    for (index, part) in answer.parts.iter().enumerate() {
        let item = output_item(part, index);
        let about = |mut data: Value| {
            data["output_index"] = json!(index);
            data["item_id"] = item.done["id"].clone();
            data
        };
        let added = json!({"type": "response.output_item.added", "output_index": index, "item": item.added});
        before_stop.push(event(added));
        for piece in split_text(&item.text) {
            let delta = json!({"type": item.delta, "delta": piece, "content_index": 0, "summary_index": 0});
            before_stop.push(event(about(delta)));
        }
        let done = json!({"type": "response.output_item.done", "output_index": index, "item": item.done});
        before_stop.push(event(done));
        output.push(item.done);
    }
    let usage = answer.usage;
    let input = usage.input_tokens + usage.cache_read_tokens;
    let usage = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output_tokens});
    let why = match &answer.stop_reason {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => None,
        StopReason::MaxTokens => Some("max_output_tokens"),
        StopReason::Refusal => Some("content_filter"),
        StopReason::Other(other) => Some(other.as_str()),
    };
    let stop = match why {
        None => json!({"type": "response.completed",
            "response": response("completed", json!({"output": output, "usage": usage}))}),
        Some(why) => json!({"type": "response.incomplete", "response": response("incomplete",
            json!({"output": output, "usage": usage, "incomplete_details": {"reason": why}}))}),
    };
    let stop = vec![event(stop)];
    let error = json!({"code": "server_is_overloaded", "message": "the engine is overloaded"});
    let failed = json!({"type": "response.failed", "response": response("failed", json!({"error": error}))});
    StreamEvents { before_stop, stop, error: event(failed) }
}

/// An item at its start and at its end, and the events in between.
struct OutputItem {
    added: Value,
    done: Value,
    delta: &'static str,
    text: String,
}

fn output_item(part: &ReplyPart, index: usize) -> OutputItem {
    match part {
        ReplyPart::Text(text) => {
            let message = |status: &str, content: Value| {
                json!({"type": "message", "id": format!("msg_{index}"), "role": "assistant", "status": status,
                    "content": content})
            };
            let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
            OutputItem {
                added: message("in_progress", json!([])),
                done: message("completed", content),
                delta: "response.output_text.delta",
                text: text.clone(),
            }
        }
        ReplyPart::Thinking { data, .. } => {
            let text = data["thinking"].as_str().unwrap_or_default();
            let id = format!("rs_{index}");
            OutputItem {
                added: json!({"type": "reasoning", "id": id, "summary": []}),
                done: json!({"type": "reasoning", "id": id, "encrypted_content": data["signature"],
                    "summary": [{"type": "summary_text", "text": text}]}),
                delta: "response.reasoning_summary_text.delta",
                text: text.to_owned(),
            }
        }
        ReplyPart::ToolUse { provider_id, name, args_json } => {
            let call = |status: &str, arguments: &str| {
                json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": provider_id,
                    "name": name, "arguments": arguments, "status": status})
            };
            OutputItem {
                added: call("in_progress", ""),
                done: call("completed", args_json),
                delta: "response.function_call_arguments.delta",
                text: args_json.clone(),
            }
        }
    }
}
