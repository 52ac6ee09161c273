//! Scripts: their form and conditions, and that the request alone determines the reply.

use std::collections::HashMap;

use bytes::Bytes;
use docket_schema::{
    content::Content,
    ids::{BlobHash, Turn},
    message::{CallId, Message, MessagePart, MessageRole, StopReason, ToolUse},
};
use serde_json::json;

use super::{
    AttemptNumber, ModelClient, ModelError, ModelReply, ModelRequest, RenderedRequest, ReplyPart,
    ScriptError, ScriptedModel, render,
};

const SCRIPT: &str = r#"
[[turns]]
text = "I look."
calls = [{ name = "read_file", args = { path = "a-{{turn}}.py" } }, { name = "list_files" }]

[[turns]]
when = { last_result_contains = "FAILED" }
text = "I fix it."
[[turns.or]]
when = { last_text_contains = "stop" }
text = "I stop."
[[turns.or]]
when = { any_contains = "hurry", last_result_lacks = "slow" }
text = "I hurry."
[[turns.or]]
text = "All is well."

[[turns]]
fault = { kind = "rate_limited", retry_after_ms = 30, times = 2 }
calls = [{ name = "run_tests", args_text = "{oops" }]
"#;

fn test_script() -> ScriptedModel {
    ScriptedModel::parse(SCRIPT.as_bytes()).expect("a script")
}

/// The body of a conversation in which every turn made one call, with these `results`.
fn request_body(model: &str, task: &str, results: &[&str], tell: Option<&str>) -> Vec<u8> {
    let text = |text: &str| MessagePart::Text { text: text.into() };
    let mut messages = vec![Message { role: MessageRole::User, parts: vec![text(task)] }];
    for (index, result) in results.iter().enumerate() {
        let call = CallId::for_tool(Turn(u32::try_from(index).expect("small") + 1), 0);
        let name = "read_file".to_owned();
        let call_part = ToolUse { call: call.clone(), name, args: json!({}), malformed: None };
        messages.push(Message { role: MessageRole::Assistant, parts: vec![MessagePart::ToolUse(call_part)] });
        let content = Content::Text((*result).to_owned());
        let result = MessagePart::ToolResult { call, content, is_error: false };
        messages.push(Message { role: MessageRole::User, parts: vec![result] });
    }
    if let (Some(tell), Some(last)) = (tell, messages.last_mut()) {
        last.parts.push(text(tell));
    }
    let request = ModelRequest {
        model: model.parse().expect("legal"),
        system: "s".to_owned(),
        tools: vec![],
        messages,
        max_output_tokens: 100,
        temperature_milli: None,
        effort: None,
        use_completion_tokens_field: false,
        began_with_thought: None,
    };
    render(&request, &HashMap::<BlobHash, Bytes>::new()).expect("well-formed")
}

fn reply_texts(answer: &ModelReply) -> Vec<String> {
    answer
        .parts
        .iter()
        .map(|part| match part {
            ReplyPart::Text(text) => text.clone(),
            ReplyPart::ToolUse { name, args_json, .. } => format!("{name} {args_json}"),
            ReplyPart::Thinking { .. } => "…".to_owned(),
        })
        .collect()
}

#[test]
fn reply_depends_only_on_the_conversation() {
    for model in ["scripted:x", "anthropic:x", "openai:x"] {
        let answer = |task: &str, results: &[&str], tell: Option<&str>| {
            let answer = test_script()
                .reply(&request_body(model, task, results, tell), AttemptNumber(1))
                .expect("an answer");
            reply_texts(&answer).join("; ")
        };
        assert_eq!(answer("go", &[], None), "I look.; read_file {\"path\":\"a-1.py\"}; list_files {}");
        assert_eq!(answer("go", &["2 FAILED"], Some("stop")), "I fix it.");
        assert_eq!(answer("go", &["ok"], Some("please stop")), "I stop.");
        assert_eq!(answer("hurry", &["ok"], None), "I hurry.");
        assert_eq!(answer("hurry", &["slow"], None), "All is well.");
        assert_eq!(answer("go", &["ok"], None), "All is well.");
    }
}

#[test]
fn faults_hit_the_first_attempts_and_turns_past_the_end_fail() {
    let third = request_body("scripted:x", "go", &["ok", "ok"], None);
    for attempt in 1..=2 {
        let error = test_script().reply(&third, AttemptNumber(attempt)).expect_err("the fault");
        assert_eq!(error, ModelError::RateLimited { retry_after_ms: Some(30) });
    }
    let answer = test_script().reply(&third, AttemptNumber(3)).expect("an answer");
    assert_eq!(reply_texts(&answer), ["run_tests {oops"]);
    assert_eq!(answer.stop_reason, StopReason::ToolUse);
    assert_eq!(answer.usage.input_tokens, third.len() as u64 / 4);
    assert_eq!(answer, test_script().reply(&third, AttemptNumber(3)).expect("the same"));
    let fourth = request_body("scripted:x", "go", &["ok", "ok", "ok"], None);
    let error = test_script().reply(&fourth, AttemptNumber(1)).expect_err("the end").to_string();
    assert!(error.contains("3 turns") && error.contains("turn 4"), "{error}");
    assert_eq!(
        test_script().reply(b"{}", AttemptNumber(1)).expect_err("no conversation").kind(),
        "invalid_request"
    );
}

#[test]
fn scripts_can_repeat_or_cycle_after_their_end() {
    for (after_end, expected) in [("repeat_last", "b 3"), ("cycle", "a 3")] {
        let json = format!(
            r#"{{"after_end": "{after_end}", "turns": [{{"text": "a {{{{turn}}}}"}}, {{"text": "b {{{{turn}}}}"}}]}}"#
        );
        let script = ScriptedModel::parse(json.as_bytes()).expect("a script");
        let answer = script
            .reply(&request_body("scripted:x", "go", &["1", "2"], None), AttemptNumber(1))
            .expect("an answer");
        assert_eq!(reply_texts(&answer), [expected]);
    }
}

#[test]
fn script_errors_name_the_mistake() {
    for (text, named) in [
        ("turns = []", "no turns"),
        ("", "no turns"),
        ("[[turns]]\ntexts = 'x'", "texts"),
        ("{\"turns\": [{\"calls\": [{}]}]}", "missing field `name`"),
        ("[[turns]]\nfault = { kind = 'sulk' }", "sulk"),
        ("{", "EOF"),
    ] {
        let error = ScriptedModel::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
    assert_eq!(ScriptedModel::parse(b"\xff"), Err(ScriptError::NotText));
}

#[tokio::test]
async fn in_process_client_streams_deltas() {
    let client = ModelClient::scripted(std::sync::Arc::new(test_script()));
    let model = "scripted:x".parse().expect("legal");
    let request = RenderedRequest { model, body: request_body("scripted:x", "go", &[], None).into() };
    let mut told = Vec::new();
    let mut tell = |delta: super::ReplyDelta<'_>| told.push(format!("{delta:?}"));
    let answer = client.call(&request, AttemptNumber(1), None, &mut tell).await.expect("an answer");
    assert_eq!(told, ["Text(\"I look.\")", "ToolUse(\"read_file\")", "ToolUse(\"list_files\")"]);
    let parts = answer.into_message_parts(Turn(1));
    assert!(matches!(&parts[2], MessagePart::ToolUse(call) if call.call == CallId("t1-1".to_owned())));
}
