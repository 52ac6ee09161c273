//! Records a model's reply as an event: without the worker's secrets, in parts that fit in an event, and without
//! calls that must not run.

use std::borrow::Cow;

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    message::{MessagePart, StopReason, TokenUsage},
    redact::Redactor,
    run::{ModelAnswered, RunState, is_truncated},
};

use crate::run::{
    log::{blob_cache::BlobCache, pending_append::PendingAppend},
    tool_calls::malformed::{TOO_LARGE_MARK, TRUNCATED_PREFIX},
};
use crate::{
    engine::{ANSWER_INLINE_BYTES_MAX, ModelCall},
    model::ModelReply,
    tools,
};

/// Arguments of all calls of a reply, in bytes of JSON. They are part of its event, and an oversized append would
/// discard a reply that was paid for.
const ARGS_BYTES_MAX: usize = 128 * 1024;

/// Returns the event for a reply to a request of `request_bytes` bytes.
pub(in crate::run) fn answer_events(
    call: &ModelCall,
    answer: ModelReply,
    request_bytes: u64,
    state: &RunState,
    redactor: &Redactor,
    material: &BlobCache,
) -> PendingAppend {
    let pins = &state.pins;
    let mut out = PendingAppend::default();
    let prices = pins.as_ref().map(|pins| pins.models.terms_for(&call.model).prices);
    let prices = prices.unwrap_or_default();
    let several = pins.as_ref().is_some_and(|pins| pins.models.has_multiple());
    let stop = match answer.stop_reason.clone() {
        StopReason::Other(said) => StopReason::Other(redactor.redact_values(&said).into_owned()),
        known => known,
    };
    let silent = answer.usage.request_tokens() == 0 && answer.usage.output_tokens == 0;
    let usage = match silent {
        true => TokenUsage::estimate(request_bytes, answer.content_bytes()),
        false => answer.usage,
    };
    let (first_byte_ms, total_ms) = (answer.first_byte_ms, answer.total_ms);
    let mut parts = redact_parts(answer.into_message_parts(call.turn), redactor);
    if stop == StopReason::Refusal && pins.as_ref().is_some_and(|pins| pins.settings.heed_stops) {
        withhold_calls(&mut parts);
    }
    if is_truncated(&stop) {
        mark_truncated_call(&mut parts, call.output_tokens_max);
    }
    if several {
        parts.iter_mut().for_each(|part| bind_reasoning_to_model(part, call));
    }
    let mut room = ARGS_BYTES_MAX;
    let parts = parts.into_iter().map(|part| drop_oversized_args(canonicalize_tool_name(part), &mut room));
    let parts = parts.map(|part| externalize_long_text(part, &mut out, material)).collect();
    let event = ModelAnswered {
        call: call.call.clone(),
        parts,
        stop,
        usage,
        cost_nusd: prices.cost_nusd(usage),
        first_byte_ms,
        total_ms,
    };
    out.push(call.turn, event);
    out
}

/// Removes the worker's keys and configured values, which a server may echo, from a reply. Everything derived from
/// it, including its calls and the next request, follows from the redacted text.
fn redact_parts(parts: Vec<MessagePart>, redactor: &Redactor) -> Vec<MessagePart> {
    let text = |text: &mut String| {
        if let Cow::Owned(without) = redactor.redact_values(text) {
            *text = without;
        }
    };
    let one = |mut part: MessagePart| {
        match &mut part {
            MessagePart::Text { text: Content::Text(said) } => text(said),
            MessagePart::Text { text: Content::B64(_) | Content::Blob(_) }
            | MessagePart::ToolResult { .. } => {}
            MessagePart::Thinking { data, .. } => {
                let sealed = is_signed_reasoning(data);
                // A signed part cannot be changed and still be accepted back, so it is dropped.
                if redactor.redact_json_values(data) && sealed {
                    return None;
                }
            }
            MessagePart::ToolUse(tool) => {
                text(&mut tool.name);
                redactor.redact_json_values(&mut tool.args);
                tool.malformed.iter_mut().for_each(text);
            }
        }
        Some(part)
    };
    parts.into_iter().filter_map(one).collect()
}

/// Whether reasoning carries a signature or is encrypted.
fn is_signed_reasoning(data: &serde_json::Value) -> bool {
    ["signature", "data", "encrypted_content"].iter().any(|field| !data[*field].is_null())
}

/// Binds reasoning to its model: other models reject its signature or ciphertext.
fn bind_reasoning_to_model(part: &mut MessagePart, call: &ModelCall) {
    if let MessagePart::Thinking { provider, .. } = part
        && *provider == call.model.provider
    {
        *provider = call.model.to_string();
    }
}

/// A refusal cancels the calls before it: they are rendered as text and not executed.
fn withhold_calls(parts: &mut Vec<MessagePart>) {
    let mut names = Vec::new();
    parts.retain(|part| match part {
        MessagePart::ToolUse(tool) => {
            names.push(format!("`{}`", tool.name.chars().take(64).collect::<String>()));
            false
        }
        MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolResult { .. } => true,
    });
    if names.is_empty() {
        return;
    }
    let told = format!("(The refusal came with calls that were not carried out: {}.)", names.join(", "));
    let said = parts.iter_mut().rev().find_map(|part| match part {
        MessagePart::Text { text: Content::Text(text) } => Some(text),
        MessagePart::Text { .. }
        | MessagePart::Thinking { .. }
        | MessagePart::ToolUse(_)
        | MessagePart::ToolResult { .. } => None,
    });
    match said {
        Some(text) => text.push_str(&format!("\n\n{told}")),
        None => parts.push(MessagePart::Text { text: told.into() }),
    }
}

/// Marks a call that was cut off by the output limit: it is not executed, even if its half is valid, and the model gets
/// the reason.
fn mark_truncated_call(parts: &mut [MessagePart], tokens_max: u32) {
    let Some(MessagePart::ToolUse(tool)) = parts.last_mut() else { return };
    let begin = match (&tool.malformed, tool.args.as_object()) {
        (Some(text), _) => text.chars().take(200).collect(),
        // No arguments had arrived yet.
        (None, Some(args)) if args.is_empty() => String::new(),
        (None, _) => return,
    };
    let why = format!(
        "{TRUNCATED_PREFIX} {tokens_max} tokens for one answer; do it in smaller parts, a large file with several calls: {begin}"
    );
    (tool.args, tool.malformed) = (serde_json::Value::Null, Some(why));
}

/// Replaces the tool's name by its canonical one, in the log and in the model's own history.
fn canonicalize_tool_name(mut part: MessagePart) -> MessagePart {
    if let MessagePart::ToolUse(tool) = &mut part {
        let meant = tools::canonical_tool_name(&tool.name);
        if meant != tool.name {
            tool.name = meant.to_owned();
        }
    }
    part
}

/// Drops arguments that do not fit in an event. The call is not run, and the model gets an error, as for any
/// malformed call.
fn drop_oversized_args(part: MessagePart, room: &mut usize) -> MessagePart {
    let MessagePart::ToolUse(mut tool) = part else { return part };
    let (json, said) = (tool.args.to_string(), tool.malformed.as_ref().map_or(0, String::len));
    let bytes = json.len() + said;
    match room.checked_sub(bytes) {
        Some(left) => *room = left,
        None => {
            let begin: String = tool.malformed.as_ref().unwrap_or(&json).chars().take(200).collect();
            let why = format!("{bytes} {TOO_LARGE_MARK}; do it in smaller parts: {begin}");
            (tool.args, tool.malformed) = (serde_json::Value::Null, Some(why));
        }
    }
    MessagePart::ToolUse(tool)
}

/// Moves long text of a reply into a blob.
fn externalize_long_text(part: MessagePart, out: &mut PendingAppend, material: &BlobCache) -> MessagePart {
    match part {
        MessagePart::Text { text: Content::Text(text) } if text.len() > ANSWER_INLINE_BYTES_MAX => {
            let blob = BlobRef::for_bytes(text.as_bytes());
            material.insert(blob, Bytes::from(text.clone()));
            out.push_blob(blob, text.into_bytes());
            MessagePart::Text { text: Content::Blob(blob) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::Turn,
        message::{CallId, ToolUse},
    };

    use super::*;

    #[test]
    fn truncated_call_is_reported_and_not_run() {
        let call = |args: serde_json::Value, malformed: Option<&str>| {
            let malformed = malformed.map(str::to_owned);
            MessagePart::ToolUse(ToolUse {
                call: CallId::for_tool(Turn(1), 0),
                name: "create_file".to_owned(),
                args,
                malformed,
            })
        };
        let whole = call(serde_json::json!({ "path": "a" }), None);
        for (last, told) in [
            (call(serde_json::Value::Null, Some("{\"path\": \"a")), true),
            (call(serde_json::json!({}), None), true),
            (whole.clone(), false),
            (MessagePart::Text { text: "and".into() }, false),
        ] {
            let mut parts = vec![whole.clone(), last.clone()];
            mark_truncated_call(&mut parts, 8192);
            assert_eq!(parts[0], whole);
            match &parts[1] {
                MessagePart::ToolUse(tool) if told => {
                    let words = tool.malformed.as_deref().unwrap_or_default();
                    assert!(words.contains("8192 tokens") && words.contains("smaller parts"), "{words}");
                }
                other => assert!(!told && *other == last, "{other:?}"),
            }
        }
    }

    #[test]
    fn echoed_worker_keys_are_redacted_in_every_part() {
        use serde_json::json;
        let redactor = Redactor::new(["sk-of-this-worker".to_owned()]);
        let thinking = |data| MessagePart::Thinking { provider: "anthropic".to_owned(), data };
        let call = |name: &str, args, malformed: Option<&str>| {
            let malformed = malformed.map(str::to_owned);
            let call = CallId::for_tool(Turn(1), 0);
            MessagePart::ToolUse(ToolUse { call, name: name.to_owned(), args, malformed })
        };
        let said = |key: &str| {
            vec![
                MessagePart::Text { text: format!("It is {key}.").into() },
                thinking(json!({ "thinking": format!("{key}!") })),
                call(key, json!({ "a": { key: [key] } }), None),
                call("x", json!(null), Some(&format!("{{ {key}"))),
            ]
        };
        let sealed = |key: &str| thinking(json!({ "thinking": key, "signature": "s" }));
        let mut parts = said("sk-of-this-worker");
        parts.extend([sealed("sk-of-this-worker"), sealed("other")]);
        let mut expected = said("[REDACTED: configured value]");
        expected.push(sealed("other"));
        assert_eq!(redact_parts(parts, &redactor), expected);
        // Secret-like text that is not a known secret is kept: calls are executed as requested.
        let shape = vec![MessagePart::Text { text: format!("ghp_{}", "aB3dE5gH7j".repeat(4)).into() }];
        assert_eq!(redact_parts(shape.clone(), &redactor), shape);
    }

    #[test]
    fn calls_of_a_refusal_are_reported_and_not_run() {
        let call = MessagePart::ToolUse(ToolUse {
            call: CallId::for_tool(Turn(1), 0),
            name: "run_command".to_owned(),
            args: serde_json::json!({}),
            malformed: None,
        });
        let told = "(The refusal came with calls that were not carried out: `run_command`.)";
        for (mut parts, then) in [
            (vec![call.clone()], told.to_owned()),
            (vec![MessagePart::Text { text: "No.".into() }, call], format!("No.\n\n{told}")),
            (vec![MessagePart::Text { text: "No.".into() }], "No.".to_owned()),
        ] {
            withhold_calls(&mut parts);
            assert_eq!(parts, [MessagePart::Text { text: then.into() }]);
        }
    }

    #[test]
    fn oversized_arguments_are_returned_to_the_model() {
        let call = |nth, bytes: usize| {
            let args = serde_json::json!({ "path": "a", "content": "x".repeat(bytes) });
            let call = CallId::for_tool(Turn(1), nth);
            MessagePart::ToolUse(ToolUse { call, name: "create_file".to_owned(), args, malformed: None })
        };
        let mut room = ARGS_BYTES_MAX;
        let parts = [call(0, 1000), call(1, 300_000), call(2, 100_000), call(3, 100_000)];
        let parts: Vec<MessagePart> =
            parts.into_iter().map(|part| drop_oversized_args(part, &mut room)).collect();
        assert!(serde_json::to_vec(&parts).unwrap().len() < docket_schema::event::PAYLOAD_BYTES_MAX);
        let told = parts.iter().map(|part| match part {
            MessagePart::ToolUse(tool) => {
                tool.malformed.as_deref().is_some_and(|why| why.contains("smaller parts"))
            }
            MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolResult { .. } => false,
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, false, true]);
    }
}
