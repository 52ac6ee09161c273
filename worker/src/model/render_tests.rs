//! Golden bytes of the protocols, conversations that rendering rejects, and a property: providers accept the
//! rendering of every well-formed conversation.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    ids::{BlobHash, Turn},
    message::{CallId, Message, MessagePart, MessageRole, ModelRef, ToolSpec, ToolUse},
    run::ReasoningEffort,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ModelRequest, RenderError, render, request_hash};

type BlobMap = HashMap<BlobHash, Bytes>;

fn call_id(turn: u32, index: usize) -> CallId {
    CallId::for_tool(Turn(turn), index)
}

fn tool_use(turn: u32, index: usize, name: &str, args: Value) -> MessagePart {
    MessagePart::ToolUse(ToolUse { call: call_id(turn, index), name: name.to_owned(), args, malformed: None })
}

fn tool_result(turn: u32, index: usize, content: impl Into<Content>, is_error: bool) -> MessagePart {
    MessagePart::ToolResult { call: call_id(turn, index), content: content.into(), is_error }
}

fn text_part(text: &str) -> MessagePart {
    MessagePart::Text { text: text.into() }
}

fn user_message(parts: Vec<MessagePart>) -> Message {
    Message { role: MessageRole::User, parts }
}

fn assistant_message(parts: Vec<MessagePart>) -> Message {
    Message { role: MessageRole::Assistant, parts }
}

fn model_request(model: &str, messages: Vec<Message>) -> ModelRequest {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
    };
    ModelRequest {
        model: model.parse().expect("legal"),
        system: "You work on a repository.".to_owned(),
        tools: vec![tool("read_file"), tool("edit_file")],
        messages,
        max_output_tokens: 8192,
        temperature_milli: Some(300),
        effort: None,
        use_completion_tokens_field: false,
        began_with_thought: None,
    }
}

/// A conversation with every kind of part, including invalid ones.
fn every_part(thinking_of: &str, thinking: Value) -> (Vec<Message>, BlobMap) {
    let long = b"a long file\x1b[0m".to_vec();
    let blob = BlobRef::for_bytes(&long);
    let messages = vec![
        user_message(vec![text_part("Fix the \"parser\".\n"), text_part("  ")]),
        assistant_message(vec![
            MessagePart::Thinking { provider: thinking_of.to_owned(), data: thinking },
            MessagePart::Thinking { provider: "elsewhere".to_owned(), data: json!({"x": 1}) },
            text_part("I look."),
            tool_use(1, 0, "read_file", json!({"path": "z.rs", "a": [1, 2.5, {"y": null, "b": true}]})),
            tool_use(1, 1, "read file!", json!({})),
            MessagePart::ToolUse(ToolUse {
                call: call_id(1, 2),
                name: "edit_file".to_owned(),
                args: Value::Null,
                malformed: Some("{\"path\": \"z".to_owned()),
            }),
        ]),
        user_message(vec![
            tool_result(1, 2, "the arguments are no JSON", true),
            tool_result(1, 0, Content::Blob(blob), false),
            text_part("And mind the tests, ünïcode \u{202e}too."),
        ]),
        user_message(vec![tool_result(1, 1, "", true)]),
        assistant_message(vec![MessagePart::Thinking {
            provider: thinking_of.to_owned(),
            data: json!({"alone": 1}),
        }]),
        user_message(vec![text_part("You said nothing. Go on.")]),
        assistant_message(vec![
            text_part("Once more."),
            tool_use(2, 0, "read_file", json!({"path": "b.bin"})),
        ]),
        user_message(vec![tool_result(2, 0, Content::B64(STANDARD.encode(b"\x00\xffbin")), false)]),
    ];
    (messages, BlobMap::from([(blob.hash, Bytes::from(long))]))
}

#[test]
fn golden_bytes_of_anthropic() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "sig=="});
    let (messages, blobs) = every_part("anthropic", thinking);
    let body = render(&model_request("anthropic:claude-x", messages), &blobs).expect("well-formed");
    insta::assert_snapshot!("anthropic_body", String::from_utf8(body).expect("UTF-8"));
}

#[test]
fn golden_bytes_of_openai() {
    let (messages, blobs) = every_part("openai", json!({"reasoning_content": "hm"}));
    let mut request = model_request("openai:gpt-x", messages);
    let body = render(&request, &blobs).expect("well-formed");
    insta::assert_snapshot!("openai_body", String::from_utf8(body).expect("UTF-8"));
    // Other servers use the older name of the limit.
    request.model.base_url = Some("http://localhost:11434/v1".to_owned());
    request.temperature_milli = None;
    let body: Value = serde_json::from_slice(&render(&request, &blobs).expect("well-formed")).expect("JSON");
    assert_eq!((&body["max_tokens"], &body["max_completion_tokens"]), (&json!(8192), &Value::Null));
    assert_eq!(body["temperature"], Value::Null);
    // OpenAI's own models are the exception, on any server.
    request.use_completion_tokens_field = true;
    let body: Value = serde_json::from_slice(&render(&request, &blobs).expect("well-formed")).expect("JSON");
    assert_eq!((&body["max_tokens"], &body["max_completion_tokens"]), (&Value::Null, &json!(8192)));
}

#[test]
fn effort_uses_the_field_of_each_protocol() {
    let body = |model: &str, effort, max_output_tokens| -> Value {
        let request = ModelRequest {
            effort,
            max_output_tokens,
            ..model_request(model, vec![user_message(vec![text_part("go")])])
        };
        serde_json::from_slice(&render(&request, &BlobMap::new()).expect("well-formed")).expect("JSON")
    };
    for (effort, name, budget) in [
        (ReasoningEffort::Low, "low", 1024),
        (ReasoningEffort::Medium, "medium", 8192),
        (ReasoningEffort::High, "high", 24_576),
    ] {
        let chat = body("openai:gpt-x", Some(effort), 64_000);
        assert_eq!((&chat["reasoning_effort"], &chat["temperature"]), (&json!(name), &json!(0.3)));
        let responses = body("openai-responses:gpt-5-x", Some(effort), 64_000);
        assert_eq!(responses["reasoning"], json!({"effort": name}));
        // With thinking, the API does not accept a temperature.
        let messages = body("anthropic:claude-opus-4-6", Some(effort), 64_000);
        assert_eq!(messages["thinking"], json!({"type": "adaptive"}));
        assert_eq!(
            (&messages["output_config"], &messages["temperature"]),
            (&json!({"effort": name}), &Value::Null)
        );
        let older = body("anthropic:claude-sonnet-4-20250514", Some(effort), 64_000);
        assert_eq!(older["thinking"], json!({"type": "enabled", "budget_tokens": budget}));
        assert_eq!((&older["output_config"], &older["temperature"]), (&Value::Null, &Value::Null));
        // A budget has to be smaller than the complete reply, and has a minimum.
        let short = body("anthropic:claude-haiku-4-5", Some(effort), 3000);
        assert_eq!(short["thinking"]["budget_tokens"], json!(budget.min(1500)));
        let shorter = body("anthropic:claude-haiku-4-5", Some(effort), 2000);
        assert_eq!((&shorter["thinking"], &shorter["temperature"]), (&Value::Null, &json!(0.3)));
    }
    // Between a call and its result the thinking mode must not change.
    for (thought, max_output_tokens, budget) in [
        (Some(false), 64_000, None),
        (Some(true), 1500, Some(1024)),
        (Some(true), 1024, None),
        (None, 1500, None),
    ] {
        let of = ModelRequest {
            effort: Some(ReasoningEffort::Low),
            max_output_tokens,
            began_with_thought: thought,
            ..model_request("anthropic:claude-haiku-4-5", vec![user_message(vec![text_part("go")])])
        };
        let body: Value =
            serde_json::from_slice(&render(&of, &BlobMap::new()).expect("well-formed")).expect("JSON");
        let budget = budget.map_or(Value::Null, |budget: u64| json!(budget));
        assert_eq!(body["thinking"]["budget_tokens"], budget, "{thought:?} {max_output_tokens}");
    }
    for model in ["openai:x", "openai-responses:x", "anthropic:x"] {
        let plain = body(model, None, 64_000);
        for field in ["reasoning_effort", "reasoning", "thinking", "output_config"] {
            assert_eq!(plain[field], Value::Null, "{model} {field}");
        }
    }
}

#[test]
fn golden_bytes_of_openai_responses() {
    let thinking = json!({"type": "reasoning", "id": "rs_1", "status": null, "encrypted_content": "gAAA",
        "summary": [{"type": "summary_text", "text": "hm"}]});
    let (messages, blobs) = every_part("openai-responses", thinking);
    let mut request = model_request("openai-responses:gpt-5-x", messages);
    let body = render(&request, &blobs).expect("well-formed");
    insta::assert_snapshot!("openai_responses_body", String::from_utf8(body).expect("UTF-8"));
    // A model without reasoning rejects a request for its reasoning.
    for (name, asks) in [("gpt-4.1", false), ("gpt-5-chat-latest", false), ("gpt-5-mini", true), ("o3", true)]
    {
        request.model.name = name.to_owned();
        let body: Value =
            serde_json::from_slice(&render(&request, &blobs).expect("well-formed")).expect("JSON");
        assert_eq!((body["include"].is_array(), &body["store"]), (asks, &json!(false)), "{name}");
    }
}

#[test]
fn invalid_conversations_are_rejected_before_sending() {
    let missing = BlobRef::for_bytes(b"gone");
    let ask = || user_message(vec![text_part("go")]);
    let use_one = || assistant_message(vec![tool_use(1, 0, "read_file", json!({}))]);
    let answer = || tool_result(1, 0, "x", false);
    for (messages, expected) in [
        (vec![], RenderError::NotUserTurn),
        (vec![user_message(vec![text_part(" ")])], RenderError::NotUserTurn),
        (vec![assistant_message(vec![text_part("x")]), ask()], RenderError::NotUserTurn),
        (vec![ask(), assistant_message(vec![text_part("x")])], RenderError::NotUserTurn),
        (vec![ask(), use_one(), ask()], RenderError::DanglingCall(call_id(1, 0))),
        (
            vec![ask(), use_one(), user_message(vec![answer(), answer()])],
            RenderError::DuplicateCall(call_id(1, 0)),
        ),
        (
            vec![
                ask(),
                use_one(),
                user_message(vec![answer()]),
                assistant_message(vec![text_part("x")]),
                user_message(vec![answer()]),
            ],
            RenderError::UnknownResult(call_id(1, 0)),
        ),
        (vec![user_message(vec![answer()])], RenderError::UnknownResult(call_id(1, 0))),
        (
            vec![ask(), use_one(), use_one(), user_message(vec![answer()])],
            RenderError::DuplicateCall(call_id(1, 0)),
        ),
        (vec![ask(), assistant_message(vec![answer()]), ask()], RenderError::WrongRole(1)),
        (
            vec![user_message(vec![MessagePart::Text { text: Content::Blob(missing) }])],
            RenderError::MissingBlob(missing.hash),
        ),
        (
            vec![user_message(vec![MessagePart::Text { text: Content::B64("!".to_owned()) }])],
            RenderError::DamagedBase64,
        ),
    ] {
        for model in ["anthropic:x", "openai:x", "openai-responses:x", "scripted:x"] {
            let request = model_request(model, messages.clone());
            assert_eq!(render(&request, &BlobMap::new()), Err(expected.clone()), "{messages:?}");
        }
    }
    let model = ModelRef { provider: "acme".to_owned(), name: "x".to_owned(), base_url: None };
    let request = ModelRequest { model, ..model_request("openai:x", vec![ask()]) };
    assert_eq!(render(&request, &BlobMap::new()), Err(RenderError::UnknownProvider("acme".to_owned())));
}

#[test]
fn previous_request_is_a_prefix_up_to_its_cache_marks() {
    let messages = |turns: u32| {
        let mut messages = vec![user_message(vec![text_part("go")])];
        for turn in 1..=turns {
            messages.push(assistant_message(vec![tool_use(turn, 0, "read_file", json!({"path": "a"}))]));
            messages.push(user_message(vec![tool_result(turn, 0, "x", false)]));
        }
        let body = render(&model_request("anthropic:x", messages), &BlobMap::new()).expect("well-formed");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        body["messages"].as_array().expect("messages").clone()
    };
    let marked = |messages: &[Value]| -> Vec<usize> {
        let has = |message: &Value| message.to_string().contains("cache_control");
        messages.iter().enumerate().filter(|(_, message)| has(message)).map(|(at, _)| at).collect()
    };
    let (before, after) = (messages(5), messages(6));
    assert_eq!(marked(&before), [8, 10]);
    assert_eq!(marked(&after), [10, 12]);
    assert_eq!(before[..8], after[..8]);
    assert_eq!(before[10], after[10]);
}

/// One reply of the model and the results of its calls.
#[derive(Debug, Clone)]
struct ToolBatch {
    results: Vec<String>,
    tell: Option<String>,
    /// How far the results are rotated out of order.
    rotate: usize,
    /// Each result in a message of its own.
    split: bool,
}

prop_compose! {
    fn any_batch()(
        results in prop::collection::vec("[ a-z\u{0}\u{1b}é\"\\\\\n]{0,12}", 0..5),
        tell in prop::option::of("[ a-z]{0,6}"),
        rotate in 0usize..5,
        split: bool,
    ) -> ToolBatch {
        ToolBatch { results, tell, rotate, split }
    }
}

/// A conversation as the run loop builds it: each batch with its results in any order, possibly split over
/// several user messages, possibly with a person's text between them, possibly with an empty reply.
fn conversation(batches: &[ToolBatch]) -> Vec<Message> {
    let mut messages = vec![user_message(vec![text_part("go")])];
    for (index, ToolBatch { results, tell, rotate, split }) in batches.iter().enumerate() {
        let turn = u32::try_from(index).expect("small") + 1;
        let mut said: Vec<MessagePart> = tell.iter().map(|tell| text_part(tell)).collect();
        let names = ["read_file", "no such tool", "", "edit_file", "x"];
        said.extend((0..results.len()).map(|call| tool_use(turn, call, names[call], json!({"n": call}))));
        messages.push(assistant_message(said));
        let mut answers: Vec<MessagePart> = results
            .iter()
            .enumerate()
            .map(|(call, text)| tool_result(turn, call, text.clone(), *split))
            .collect();
        let count = answers.len().max(1);
        answers.rotate_left(rotate % count);
        if let Some(tell) = tell {
            answers.insert(answers.len() / 2, text_part(tell));
        }
        if *split {
            messages.extend(answers.into_iter().map(|part| user_message(vec![part])));
        } else {
            messages.push(user_message(answers));
        }
    }
    messages.push(user_message(vec![text_part("on")]));
    messages
}

/// Ids of the blocks of `kind` in an Anthropic message, in order.
fn block_ids(message: &Value, kind: &str, field: &str) -> Vec<String> {
    let blocks = message["content"].as_array().expect("blocks");
    let of_kind = blocks.iter().filter(|block| block["type"] == kind);
    of_kind.map(|block| block[field].as_str().expect("an id").to_owned()).collect()
}

proptest! {
    #[test]
    fn well_formed_conversations_render_to_valid_requests(
        batches in prop::collection::vec(any_batch(), 0..6)
    ) {
        let messages = conversation(&batches);
        for model in ["anthropic:x", "openai:x", "openai-responses:x"] {
            let request = model_request(model, messages.clone());
            let body = render(&request, &BlobMap::new()).expect("well-formed");
            let again = render(&request.clone(), &BlobMap::new()).expect("well-formed");
            prop_assert_eq!(request_hash(&body), request_hash(&again));
            prop_assert_eq!(&body, &again);
        }
        let body = render(&model_request("anthropic:x", messages.clone()), &BlobMap::new()).expect("well-formed");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let said = body["messages"].as_array().expect("messages");
        for (index, message) in said.iter().enumerate() {
            prop_assert_eq!(&message["role"], if index % 2 == 0 { "user" } else { "assistant" });
            prop_assert!(!message["content"].as_array().expect("blocks").is_empty());
            let uses = block_ids(message, "tool_use", "id");
            let results = said.get(index + 1).map(|next| block_ids(next, "tool_result", "tool_use_id"));
            prop_assert_eq!(uses, results.unwrap_or_default());
        }
        let body = render(&model_request("openai-responses:x", messages.clone()), &BlobMap::new()).expect("well-formed");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let mut open: Vec<&Value> = Vec::new();
        for item in body["input"].as_array().expect("items") {
            match item["type"].as_str() {
                Some("function_call") => open.push(&item["call_id"]),
                Some("function_call_output") => prop_assert_eq!(open.remove(0), &item["call_id"]),
                _ => prop_assert!(item["role"] == "assistant" || open.is_empty()),
            }
        }
        prop_assert!(open.is_empty());
        let body = render(&model_request("openai:x", messages), &BlobMap::new()).expect("well-formed");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let mut open: Vec<Value> = Vec::new();
        for message in body["messages"].as_array().expect("messages") {
            if message["role"] == "tool" {
                prop_assert_eq!(&open.remove(0), &message["tool_call_id"]);
            } else {
                prop_assert!(open.is_empty());
                let calls = message["tool_calls"].as_array();
                open = calls.into_iter().flatten().map(|call| call["id"].clone()).collect();
            }
        }
        prop_assert!(open.is_empty());
    }
}
