//! Streams as sent by providers and compatible servers, decoded completely and cut after every event.

use docket_schema::message::{StopReason, TokenUsage};
use serde_json::{Value, json};

use super::{
    ModelError, ReplyDelta, ReplyPart, anthropic, openai,
    provider_protocol::StreamDecoder,
    responses,
    stream_decoder::{DecodedReply, StreamError},
};

fn decode(
    mut fold: Box<dyn StreamDecoder>,
    events: &[Value],
    told: &mut Vec<String>,
) -> Result<DecodedReply, ModelError> {
    for event in events {
        let data = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
        let mut tell = |delta: ReplyDelta<'_>| told.push(format!("{delta:?}"));
        fold.push_event(&data, &mut tell).expect("the protocol");
    }
    fold.finish()
}

fn decode_anthropic(events: &[Value]) -> Result<DecodedReply, ModelError> {
    decode(Box::new(anthropic::AnthropicDecoder::default()), events, &mut Vec::new())
}

fn decode_openai(events: &[Value]) -> Result<DecodedReply, ModelError> {
    decode(Box::new(openai::ChatDecoder::default()), events, &mut Vec::new())
}

fn decode_responses(events: &[Value]) -> Result<DecodedReply, ModelError> {
    decode(Box::new(responses::ResponsesDecoder::default()), events, &mut Vec::new())
}

fn tool_use(id: &str, name: &str, args: &str) -> ReplyPart {
    ReplyPart::ToolUse { provider_id: id.to_owned(), name: name.to_owned(), args_json: args.to_owned() }
}

fn anthropic_stream() -> Vec<Value> {
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "usage": {
            "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "s=="})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "I "})),
        delta(1, json!({"type": "text_delta", "text": "look."})),
        stop(1),
        start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"path\": "})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "\"a\"}"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_2", "name": "list_files", "input": {}})),
        stop(3),
        start(4, json!({"type": "a_later_kind"})),
        json!({"type": "a_later_event"}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn anthropic_streams_decode_in_full_and_truncated() {
    let events = anthropic_stream();
    let mut told = Vec::new();
    let whole = decode(Box::new(anthropic::AnthropicDecoder::default()), &events, &mut told).expect("whole");
    assert_eq!(
        whole.parts,
        [
            ReplyPart::Thinking {
                provider: "anthropic".to_owned(),
                data: json!({"type": "thinking", "thinking": "hm", "signature": "s=="}),
            },
            ReplyPart::Text("I look.".to_owned()),
            tool_use("toolu_1", "read_file", "{\"path\": \"a\"}"),
            tool_use("toolu_2", "list_files", "{}"),
        ]
    );
    assert_eq!(whole.stop_reason, StopReason::ToolUse);
    let usage = TokenUsage {
        input_tokens: 10,
        output_tokens: 42,
        cache_read_tokens: 100,
        cache_write_tokens: 5,
        ..TokenUsage::default()
    };
    assert_eq!(whole.usage, usage);
    assert_eq!(
        told,
        [
            "Thinking(\"h\")",
            "Thinking(\"m\")",
            "Text(\"I \")",
            "Text(\"look.\")",
            "ToolUse(\"read_file\")",
            "ToolUse(\"list_files\")"
        ]
    );
    for cut in 0..events.len() - 2 {
        assert_eq!(decode_anthropic(&events[..cut]).expect_err("cut"), ModelError::CutStream, "after {cut}");
    }
}

#[test]
fn truncated_thinking_is_left_out() {
    let events = [
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {}}),
    ];
    let folded = decode_anthropic(&events).expect("whole");
    assert_eq!((folded.parts, folded.stop_reason), (vec![], StopReason::MaxTokens));
}

fn openai_chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn openai_stream() -> Vec<Value> {
    let call = |call: Value| openai_chunk(json!({"tool_calls": [call]}), Value::Null);
    vec![
        openai_chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        openai_chunk(json!({"reasoning_content": "h"}), Value::Null),
        openai_chunk(json!({"reasoning_content": "m"}), Value::Null),
        openai_chunk(json!({"content": "I look."}), Value::Null),
        call(
            json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": ""}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"path\""}})),
        call(json!({"index": 1, "id": "call_2", "function": {"name": "list_files", "arguments": ""}})),
        call(json!({"index": 0, "function": {"arguments": ": \"a\"}"}})),
        openai_chunk(json!({}), json!("tool_calls")),
        json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 110, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 100}}}),
        json!("[DONE]"),
    ]
}

#[test]
fn openai_streams_decode_in_full_and_truncated() {
    let events = openai_stream();
    let whole = decode_openai(&events).expect("whole");
    assert_eq!(
        whole.parts,
        [
            ReplyPart::Thinking { provider: "openai".to_owned(), data: json!({"reasoning_content": "hm"}) },
            ReplyPart::Text("I look.".to_owned()),
            tool_use("call_1", "read_file", "{\"path\": \"a\"}"),
            tool_use("call_2", "list_files", ""),
        ]
    );
    assert_eq!(whole.stop_reason, StopReason::ToolUse);
    let usage = TokenUsage {
        input_tokens: 10,
        output_tokens: 7,
        cache_read_tokens: 100,
        cache_write_tokens: 0,
        ..TokenUsage::default()
    };
    assert_eq!(whole.usage, usage);
    for cut in 0..8 {
        assert_eq!(decode_openai(&events[..cut]).expect_err("cut"), ModelError::CutStream, "after {cut}");
    }
}

/// A stream as OpenAI sends it: each item started, streamed and completed, then the response without its
/// items' deltas.
fn responses_stream() -> Vec<Value> {
    let added = |index: u64, item: Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let done = |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let message = |content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content});
    let call = |id: &str, name: &str, args: &str| json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": args});
    let args = |index: u64, delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": index, "item_id": "fc_1", "delta": delta});
    vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": [], "error": null, "usage": null}}),
        json!({"type": "response.in_progress", "response": {"id": "resp_1", "status": "in_progress"}}),
        added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm"}),
        done(0, reasoning_item()),
        added(1, message(json!([]))),
        json!({"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "I "}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "look."}),
        json!({"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "I look."}),
        done(1, message(json!([{"type": "output_text", "text": "I look.", "annotations": []}]))),
        added(2, call("call_1", "read_file", "")),
        args(2, "{\"path\""),
        args(2, ": \"a\"}"),
        done(2, call("call_1", "read_file", "{\"path\": \"a\"}")),
        added(3, call("call_2", "list_files", "")),
        // A compatible server's end of an item, which does not repeat the streamed content.
        args(3, "{}"),
        done(3, call("call_2", "list_files", "")),
        json!({"type": "response.a_later_event", "output_index": 3}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "error": null, "usage": {
            "input_tokens": 110, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 117}}}),
    ]
}

fn reasoning_item() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"})
}

#[test]
fn responses_streams_decode_in_full_and_truncated() {
    let events = responses_stream();
    let mut told = Vec::new();
    let whole = decode(Box::new(responses::ResponsesDecoder::default()), &events, &mut told).expect("whole");
    assert_eq!(
        whole.parts,
        [
            ReplyPart::Thinking { provider: "openai-responses".to_owned(), data: reasoning_item() },
            ReplyPart::Text("I look.".to_owned()),
            tool_use("call_1", "read_file", "{\"path\": \"a\"}"),
            tool_use("call_2", "list_files", "{}"),
        ]
    );
    assert_eq!(whole.stop_reason, StopReason::ToolUse);
    let usage = TokenUsage {
        input_tokens: 10,
        output_tokens: 7,
        cache_read_tokens: 100,
        cache_write_tokens: 0,
        ..TokenUsage::default()
    };
    assert_eq!(whole.usage, usage);
    let streamed = [
        "Thinking(\"hm\")",
        "Text(\"I \")",
        "Text(\"look.\")",
        "ToolUse(\"read_file\")",
        "ToolUse(\"list_files\")",
    ];
    assert_eq!(told, streamed);
    for cut in 0..events.len() {
        assert_eq!(decode_responses(&events[..cut]).expect_err("cut"), ModelError::CutStream, "after {cut}");
    }
}

#[test]
fn response_end_events_set_the_stop_reason() {
    let said = |piece: Value| {
        json!({"type": "response.output_item.done", "output_index": 0,
        "item": {"type": "message", "role": "assistant", "content": [piece]}})
    };
    let text = || said(json!({"type": "output_text", "text": "No."}));
    let cut = json!({"type": "response.output_item.done", "output_index": 1,
        "item": {"type": "function_call", "status": "incomplete", "call_id": "c", "name": "x", "arguments": "{\"a"}});
    let incomplete = |reason: &str| {
        json!({"type": "response.incomplete",
        "response": {"status": "incomplete", "incomplete_details": {"reason": reason}, "usage": {"output_tokens": 5}}})
    };
    let completed = json!({"type": "response.completed", "response": {"status": "completed", "usage": {}}});
    let answer = ReplyPart::Text("No.".to_owned());
    for (events, parts, stop) in [
        (vec![text(), completed.clone()], vec![answer.clone()], StopReason::EndTurn),
        (
            vec![said(json!({"type": "refusal", "refusal": "No."})), completed.clone()],
            vec![answer.clone()],
            StopReason::Refusal,
        ),
        (
            vec![text(), cut, incomplete("max_output_tokens")],
            vec![answer.clone(), tool_use("c", "x", "{\"a")],
            StopReason::MaxTokens,
        ),
        (vec![text(), incomplete("content_filter")], vec![answer.clone()], StopReason::Refusal),
        (vec![incomplete("later")], vec![], StopReason::Other("later".to_owned())),
        // Reasoning without its encrypted content could not be sent back.
        (
            vec![
                json!({"type": "response.output_item.done", "output_index": 0,
                    "item": {"type": "reasoning", "summary": [], "encrypted_content": null}}),
                incomplete("max_output_tokens"),
            ],
            vec![],
            StopReason::MaxTokens,
        ),
        // Everything in the final event.
        (
            vec![json!({"type": "response.completed", "response": {"output": [
                {"type": "message", "content": [{"type": "output_text", "text": "No."}]}]}})],
            vec![answer],
            StopReason::EndTurn,
        ),
    ] {
        let folded = decode_responses(&events).expect("whole");
        assert_eq!((folded.parts, folded.stop_reason), (parts, stop), "{events:?}");
    }
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "m"}}});
    let fault = responses::ResponsesDecoder::default()
        .push_event(&failed.to_string(), &mut |_| {})
        .expect_err("failed");
    let expected = br#"{"error":{"code":"server_error","message":"m"}}"#;
    assert!(matches!(fault, StreamError::ProviderError(body) if body == expected));
}

/// Variants in which compatible servers send two calls.
#[test]
fn tool_calls_of_deviating_servers_are_decoded() {
    let function = |name: &str, args: Value| json!({"name": name, "arguments": args});
    let variants = [
        // One event with both calls, without indexes.
        vec![openai_chunk(
            json!({"tool_calls": [
                {"id": "a", "function": function("x", json!("{}"))},
                {"id": "b", "function": function("y", json!("{\"n\":1}"))}]}),
            Value::Null,
        )],
        // The same index for both, distinguished by id and name.
        vec![
            openai_chunk(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": function("x", json!("{}"))}]}),
                Value::Null,
            ),
            openai_chunk(
                json!({"tool_calls": [{"index": 0, "id": "b", "function": function("y", json!("{\"n\":1}"))}]}),
                Value::Null,
            ),
        ],
        // The id repeated with every part; arguments as an object.
        vec![
            openai_chunk(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": function("x", json!("{"))}]}),
                Value::Null,
            ),
            openai_chunk(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "}"}}]}),
                Value::Null,
            ),
            openai_chunk(
                json!({"tool_calls": [{"index": 1, "id": "b", "function": function("y", json!({"n": 1}))}]}),
                Value::Null,
            ),
        ],
    ];
    for mut events in variants {
        events.push(openai_chunk(json!({}), json!("stop")));
        let folded = decode_openai(&events).expect("whole");
        assert_eq!(folded.parts, [tool_use("a", "x", "{}"), tool_use("b", "y", "{\"n\":1}")], "{events:?}");
    }
}

#[test]
fn inline_thoughts_are_split_from_the_text() {
    let chunk = |delta: Value, finish: Value| json!({"choices": [{"delta": delta, "finish_reason": finish}]});
    for (text, thought, said) in [
        ("<think>hm</think>\n\nDone.", "<think>hm</think>\n\n", "Done."),
        ("\n<think>\nhm\n</think>", "\n<think>\nhm\n</think>", ""),
        ("<think>hm, and no end", "<think>hm, and no end", ""),
        // The opening tag was part of the chat template.
        ("hm\n</think>\n\nDone.", "hm\n</think>\n\n", "Done."),
        // Text about tags is not reasoning.
        ("I close it with </think> now.", "", "I close it with </think> now."),
        ("I write `<think>`:\n</think>\n", "", "I write `<think>`:\n</think>\n"),
        ("Done.", "", "Done."),
    ] {
        let pieces = text.chars().map(|c| chunk(json!({"content": c.to_string()}), Value::Null));
        let events: Vec<Value> = pieces.chain([chunk(json!({}), json!("stop"))]).collect();
        let mut expected = Vec::new();
        if !thought.is_empty() {
            let data = json!({ "think": thought });
            expected.push(ReplyPart::Thinking { provider: "openai".to_owned(), data });
        }
        if !said.is_empty() {
            expected.push(ReplyPart::Text(said.to_owned()));
        }
        assert_eq!(decode_openai(&events).expect("whole").parts, expected, "{text:?}");
    }
}

#[test]
fn stream_errors_and_invalid_json_are_reported() {
    let mut ignore = |_: ReplyDelta<'_>| {};
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#;
    let folds: [Box<dyn StreamDecoder>; 3] = [
        Box::new(anthropic::AnthropicDecoder::default()),
        Box::new(openai::ChatDecoder::default()),
        Box::new(responses::ResponsesDecoder::default()),
    ];
    for mut fold in folds {
        let fault = fold.push_event(error, &mut ignore).expect_err("an error event");
        assert!(matches!(fault, StreamError::ProviderError(body) if body == error.as_bytes()));
        let fault = fold.push_event("<html>", &mut ignore).expect_err("no JSON");
        assert!(matches!(fault, StreamError::NotJson(data) if data == "<html>"));
        // JSON of any other form is ignored, and the stream ends as cut.
        for odd in ["7", "[]", "null", "{\"choices\":7}", "{\"type\":\"content_block_delta\"}"] {
            fold.push_event(odd, &mut ignore).expect("passed over");
        }
        assert_eq!(fold.finish().expect_err("no reason"), ModelError::CutStream);
    }
}
