//! Runs the client of `docket-worker` against this server: every fault over real HTTP ends in its
//! typed outcome, and the strict checks accept conversations rendered from replies.

use std::{collections::HashMap, time::Duration};

use axum::body::Bytes;
use docket_schema::{
    ids::{BlobHash, Turn},
    message::{CallId, Message, MessagePart, MessageRole, ModelRef, StopReason, ToolSpec, ToolUse},
};
use docket_worker::model::{
    AttemptNumber, ModelClient, ModelError, ModelProvider, ModelReply, ModelRequest, ModelTimeouts,
    RenderedRequest, ReplyDelta, ReplyPart, ScriptedModel, Secret, TimeoutKind, render,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::ModelServer;

const ALL_PROVIDERS: [ModelProvider; 3] =
    [ModelProvider::Anthropic, ModelProvider::OpenAi, ModelProvider::OpenAiResponses];

fn parse_script(text: &str) -> ScriptedModel {
    ScriptedModel::parse(text.as_bytes()).expect("a script")
}

fn default_key() -> Secret {
    Secret::new(ModelServer::DEFAULT_KEY).expect("a key")
}

/// The allow list of a worker with servers on this machine.
fn server_allowlist() -> [String; 1] {
    ["http://127.0.0.1:*".to_owned()]
}

fn user_message() -> Vec<Message> {
    vec![Message { role: MessageRole::User, parts: vec![MessagePart::Text { text: "go".into() }] }]
}

fn render_request(model: ModelRef, messages: Vec<Message>) -> RenderedRequest {
    let request = ModelRequest {
        model: model.clone(),
        system: "You work.".to_owned(),
        tools: vec![ToolSpec {
            name: "read_file".to_owned(),
            description: "Reads.".to_owned(),
            input_schema: json!({"type": "object", "properties": {}}),
        }],
        messages,
        max_output_tokens: 1000,
        temperature_milli: None,
        effort: None,
        use_completion_tokens_field: false,
        began_with_thought: None,
    };
    let body = render(&request, &HashMap::<BlobHash, Bytes>::new()).expect("well-formed");
    RenderedRequest { model, body: body.into() }
}

async fn call_model(
    model: &ModelRef,
    timeouts: ModelTimeouts,
    key: Option<&Secret>,
) -> Result<ModelReply, ModelError> {
    let client = ModelClient::new(model, &server_allowlist(), timeouts).expect("an address");
    // The driver may move a call to another thread.
    assert_send(client.call(
        &render_request(model.clone(), user_message()),
        AttemptNumber(1),
        key,
        &mut |_| {},
    ))
    .await
}

fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

/// A server that answers one request with `pieces`, each after its pause, and then stays silent until the
/// client closes.
async fn start_slow_server(pieces: Vec<(u64, &'static str)>) -> ModelRef {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut asked = vec![0; 64 * 1024];
        let _ = socket.read(&mut asked).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        socket.write_all(head.as_bytes()).await.expect("a head");
        for (pause_ms, piece) in pieces {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            if socket.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
        }
        // Held open: the client closes first.
        let _ = socket.read(&mut asked).await;
    });
    let model: ModelRef = "openai:odd".parse().expect("a model");
    ModelRef { base_url: Some(format!("http://127.0.0.1:{port}/v1")), ..model }
}

const CONTENT_CHUNK: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"All\"},\"finish_reason\":null}]}\n\n";
const STOP_CHUNK: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

#[tokio::test]
async fn complete_answer_is_accepted_without_end_of_stream() {
    let limit = Duration::from_millis(300);
    let short = ModelTimeouts { first_byte: limit, idle: limit, ..ModelTimeouts::default() };
    let model = start_slow_server(vec![(0, CONTENT_CHUNK), (0, STOP_CHUNK)]).await;
    let answer = call_model(&model, short, None).await.expect("it is whole");
    assert_eq!(answer.parts, [ReplyPart::Text("All".to_owned())]);
    let model = start_slow_server(vec![(0, CONTENT_CHUNK)]).await;
    let error = call_model(&model, short, None).await.expect_err("it is not");
    assert_eq!(error.kind(), "timeout");
}

#[tokio::test]
async fn keep_alives_do_not_extend_the_timeout_forever() {
    // A busy machine may delay a keep-alive, but by no more than five times its pause.
    let limit = Duration::from_secs(1);
    let short = ModelTimeouts { first_byte: limit, idle: limit, ..ModelTimeouts::default() };
    let alive = |times: usize| std::iter::repeat_n((150, ": keep-alive\n\n"), times);
    let model = start_slow_server(alive(10).chain([(0, CONTENT_CHUNK), (0, STOP_CHUNK)]).collect()).await;
    assert!(call_model(&model, short, None).await.is_ok(), "a request may wait for its turn");
    let model = start_slow_server(alive(100).collect()).await;
    assert_eq!(call_model(&model, short, None).await.expect_err("nothing is said").kind(), "timeout");
    // An object instead of a stream, after a keep-alive line.
    let whole = "{\"choices\":[{\"message\":{\"content\":\"All\"},\"finish_reason\":\"stop\"}]}";
    let model = start_slow_server(vec![(0, "\n"), (50, whole)]).await;
    assert_eq!(call_model(&model, short, None).await.map_err(|error| error.kind()).map(|_| ()), Ok(()));
}

#[tokio::test]
async fn each_fault_has_a_typed_outcome_and_the_next_attempt_succeeds() {
    let usual = ModelTimeouts::default();
    let limit = Duration::from_millis(300);
    let short = ModelTimeouts { first_byte: limit, idle: limit, ..usual };
    let timeout = |which| ModelError::Timeout { which, after_ms: 300 };
    let limited = |retry_after_ms| ModelError::RateLimited { retry_after_ms };
    for (fault, timeouts, expected) in [
        ("kind = 'rate_limited'", usual, Ok(limited(None))),
        ("kind = 'rate_limited', retry_after_ms = 3000", usual, Ok(limited(Some(3000)))),
        ("kind = 'rate_limited', retry_after_ms = 120", usual, Ok(limited(Some(120)))),
        ("kind = 'overloaded'", usual, Ok(ModelError::Overloaded { retry_after_ms: None })),
        ("kind = 'server_error'", usual, Ok(ModelError::Server { status: 500, retry_after_ms: None })),
        ("kind = 'error_in_stream'", usual, Ok(ModelError::Overloaded { retry_after_ms: None })),
        ("kind = 'cut_stream'", usual, Ok(ModelError::CutStream)),
        ("kind = 'reset'", usual, Ok(ModelError::CutStream)),
        ("kind = 'slow_first_byte'", short, Ok(timeout(TimeoutKind::FirstByte))),
        ("kind = 'stall'", short, Ok(timeout(TimeoutKind::Idle))),
        ("kind = 'spend_limit'", usual, Err("spend_limit")),
        ("kind = 'unauthorized'", usual, Err("unauthorized")),
        ("kind = 'forbidden'", usual, Err("forbidden")),
        ("kind = 'context_too_long'", usual, Err("context_too_long")),
    ] {
        let text = format!("[[turns]]\ntext = \"All of this is said.\"\nfault = {{ {fault} }}");
        for provider in ALL_PROVIDERS {
            let server = ModelServer::start(parse_script(&text)).await.expect("a port");
            let model = server.model_ref(provider, "m");
            let error = call_model(&model, timeouts, Some(&default_key())).await.expect_err(fault);
            match &expected {
                Ok(expected) => {
                    assert_eq!((&error, error.is_retryable()), (expected, true), "{provider:?}");
                }
                Err(kind) => assert_eq!((error.kind(), error.is_retryable()), (*kind, false), "{provider:?}"),
            }
            let answer = call_model(&model, usual, Some(&default_key())).await.expect("the fault is over");
            assert_eq!(answer.parts, [ReplyPart::Text("All of this is said.".to_owned())]);
            assert_eq!(server.call_count(), 2);
            server.shutdown().await.expect("a clean end");
        }
    }
}

const CONVERSATION: &str = r#"
[[turns]]
thinking = "Where is it?"
text = "Ich lese zuerst äöü."
calls = [{ name = "read_file", args = { path = "a.py" } }, { name = "no tool", args_text = "{\"path\": " }]

[[turns]]
when = { last_result_contains = "FAILED", last_text_contains = "mind" }
calls = [{ name = "read_file" }]

[[turns]]
text = "Done."
"#;

#[tokio::test]
async fn conversation_is_accepted_turn_by_turn_on_one_connection() {
    for provider in ALL_PROVIDERS {
        let server = ModelServer::start(parse_script(CONVERSATION)).await.expect("a port");
        let model = server.model_ref(provider, "m");
        let client =
            ModelClient::new(&model, &server_allowlist(), ModelTimeouts::default()).expect("an address");
        let mut messages = user_message();
        let mut reasons = Vec::new();
        let mut streamed = String::new();
        for turn in 1..=3 {
            let request = render_request(model.clone(), messages.clone());
            let mut tell = |delta: ReplyDelta<'_>| {
                if let ReplyDelta::Text(text) = delta {
                    streamed.push_str(text);
                }
            };
            let answer = client
                .call(&request, AttemptNumber(1), Some(&default_key()), &mut tell)
                .await
                .expect("an answer");
            assert_eq!(answer.usage.input_tokens, request.body.len() as u64 / 4);
            assert!(answer.provider_request_id.as_deref().is_some_and(|id| id.starts_with("req_")));
            reasons.push(answer.stop_reason.clone());
            let said = answer.into_message_parts(Turn(turn));
            let mut answers: Vec<MessagePart> = said
                .iter()
                .filter_map(|part| match part {
                    MessagePart::ToolUse(call) => Some(MessagePart::ToolResult {
                        call: call.call.clone(),
                        content: if call.malformed.is_some() { "no JSON" } else { "1 FAILED" }.into(),
                        is_error: true,
                    }),
                    MessagePart::Text { .. }
                    | MessagePart::Thinking { .. }
                    | MessagePart::ToolResult { .. } => None,
                })
                .collect();
            answers.push(MessagePart::Text { text: "And mind the tests.".into() });
            messages.push(Message { role: MessageRole::Assistant, parts: said });
            messages.push(Message { role: MessageRole::User, parts: answers });
        }
        assert_eq!(reasons, [StopReason::ToolUse, StopReason::ToolUse, StopReason::EndTurn]);
        assert_eq!(streamed, "Ich lese zuerst äöü.Done.");
        let requests = server.requests();
        assert!(requests.iter().all(|request| request.answered_at >= Some(request.received_at)));
        assert_eq!(
            (requests.len(), server.call_count(), server.connection_count()),
            (3, 3, 1),
            "{provider:?}"
        );
        // Reasoning was sent back unchanged.
        assert!(String::from_utf8_lossy(&requests[2].body).contains("Where is it?"));
        server.shutdown().await.expect("a clean end");
    }
}

#[tokio::test]
async fn unusual_answers_are_accepted() {
    for (fault, expected) in [
        ("empty", vec![]),
        ("malformed_arguments", vec![("read_file", "{\"path\"")]),
        ("unknown_tool", vec![("no_such_read_file", "{\"path\":\"a.py\"}")]),
    ] {
        let text = format!(
            "[[turns]]\ncalls = [{{ name = 'read_file', args = {{ path = 'a.py' }} }}]\nfault = {{ kind = '{fault}' }}"
        );
        for provider in ALL_PROVIDERS {
            let server = ModelServer::start(parse_script(&text)).await.expect("a port");
            let model = server.model_ref(provider, "m");
            let answer =
                call_model(&model, ModelTimeouts::default(), Some(&default_key())).await.expect(fault);
            assert_eq!(answer.is_empty(), fault == "empty");
            let calls: Vec<(&str, &str)> = answer
                .parts
                .iter()
                .map(|part| match part {
                    ReplyPart::ToolUse { name, args_json, .. } => (name.as_str(), args_json.as_str()),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(calls, expected, "{provider:?}");
        }
    }
}

#[tokio::test]
async fn wrong_key_is_refused_and_never_leaked() {
    let wrong = Secret::new("sk-live-very-secret").expect("a key");
    for provider in ALL_PROVIDERS {
        let server = ModelServer::start(parse_script("[[turns]]\ntext='x'")).await.expect("a port");
        let model = server.model_ref(provider, "m");
        for key in [Some(&wrong), None] {
            let error = call_model(&model, ModelTimeouts::default(), key).await.expect_err("a wrong key");
            assert_eq!(error.kind(), "unauthorized");
            assert!(!format!("{error} {error:?}").contains("very-secret"), "{error}");
        }
    }
}

#[tokio::test]
async fn unknown_model_and_exhausted_script_are_refused() {
    let scripts = [("m".to_owned(), parse_script("[[turns]]\ntext='x'"))].into();
    let server = ModelServer::start_by_model(scripts).await.expect("a port");
    for provider in ALL_PROVIDERS {
        let known = server.model_ref(provider, "m");
        call_model(&known, ModelTimeouts::default(), Some(&default_key())).await.expect("a known name");
        let error =
            call_model(&server.model_ref(provider, "n"), ModelTimeouts::default(), Some(&default_key()))
                .await;
        assert_eq!(error.expect_err("an unknown name").kind(), "invalid_request");
    }
}

proptest! {
    /// The strict checks accept every rendering of a well-formed conversation: two oracles written
    /// independently.
    #[test]
    fn rendered_conversations_are_accepted(
        batches in prop::collection::vec(
            (prop::option::of("[ a-z]{0,5}"), prop::collection::vec("[ a-z\u{0}\n]{0,8}", 0..4), any::<bool>()), 0..6,
        )
    ) {
        for provider in ALL_PROVIDERS {
            let mut messages = user_message();
            for (index, (said, results, malformed)) in batches.iter().enumerate() {
                let turn = Turn(u32::try_from(index).expect("small") + 1);
                let text = said.iter().map(|text| MessagePart::Text { text: text.as_str().into() });
                let calls = (0..results.len()).map(|at| MessagePart::ToolUse(ToolUse {
                    call: CallId::for_tool(turn, at),
                    name: ["read_file", "no tool", "", "x"][at].to_owned(),
                    args: if *malformed { Value::Null } else { json!({"n": at}) },
                    malformed: malformed.then(|| "{\"n".to_owned()),
                }));
                messages.push(Message { role: MessageRole::Assistant, parts: text.clone().chain(calls).collect() });
                let answers = results.iter().enumerate().rev().map(|(at, result)| MessagePart::ToolResult {
                    call: CallId::for_tool(turn, at),
                    content: result.as_str().into(),
                    is_error: *malformed,
                });
                messages.push(Message { role: MessageRole::User, parts: text.chain(answers).collect() });
            }
            messages.push(Message { role: MessageRole::User, parts: vec![MessagePart::Text { text: "on".into() }] });
            let model = ModelRef { provider: provider.name().to_owned(), name: "m".to_owned(), base_url: None };
            let body: Value = serde_json::from_slice(&render_request(model, messages).body).expect("JSON");
            let checked = match provider {
                ModelProvider::Anthropic => super::request_check::check_anthropic(&body),
                ModelProvider::OpenAi | ModelProvider::Scripted => super::request_check::check_openai(&body),
                ModelProvider::OpenAiResponses => super::responses_check::check_responses(&body),
            };
            prop_assert_eq!(checked, Ok(()));
        }
    }
}

/// Answers every connection with `reply` and closes it.
async fn start_canned_server(reply: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 65_536];
            let mut read = 0;
            while !request[..read].ends_with(b"}") {
                match stream.read(&mut request[read..]).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => read += count,
                }
            }
            drop(stream.write_all(reply.as_bytes()).await);
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn servers_with_another_protocol_are_reported() {
    for (reply, expected) in [
        ("", "connect"),
        ("SSH-2.0-OpenSSH\r\n", "connect"),
        ("HTTP/1.1 302 Found\r\nlocation: http://localhost/\r\ncontent-length: 0\r\n\r\n", "protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>", "protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}", "protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: <html>\n\n", "protocol"),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"type\":\"pi", "cut_stream"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\ndata",
            "cut_stream",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: sk-scripted-0123456789\n\n",
            "protocol",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "cut_stream"),
        ("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 999\r\n\r\n<html>bad", "server"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 39\r\n\r\n{\"error\":{\"code\":\"insufficient_quota\"}}",
            "spend_limit",
        ),
    ] {
        let base = start_canned_server(reply).await;
        for provider in ALL_PROVIDERS {
            let model = ModelRef {
                provider: provider.name().to_owned(),
                name: "m".to_owned(),
                base_url: Some(base.clone()),
            };
            let error =
                call_model(&model, ModelTimeouts::default(), Some(&default_key())).await.expect_err(reply);
            assert_eq!(error.kind(), expected, "{provider:?} {reply:?} {error}");
            assert!(!error.to_string().contains(ModelServer::DEFAULT_KEY), "{error}");
        }
    }
}

/// Any submitter of a task can name its server: that must not reveal the worker's key or other parties'
/// replies.
#[tokio::test]
async fn unlisted_server_gets_no_key_and_is_not_quoted() {
    for provider in ALL_PROVIDERS {
        let server = ModelServer::start(parse_script(CONVERSATION)).await.expect("a port");
        let model = server.model_ref(provider, "m");
        let request = render_request(model.clone(), user_message());
        let client = ModelClient::new(&model, &[], ModelTimeouts::default()).expect("on this machine");
        let error = client
            .call(&request, AttemptNumber(1), Some(&default_key()), &mut |_| {})
            .await
            .expect_err("no key");
        let told = error.to_string();
        // With its key the server would have answered; the text is its own.
        assert!(matches!(error, ModelError::KeyWithheld { status: 401 }), "{told}");
        assert!(told.contains("status 401") && told.contains("worker.base_urls"), "{told}");
        assert!(!told.contains("incorrect API key"), "{told}");
        call_model(&model, ModelTimeouts::default(), Some(&default_key()))
            .await
            .expect("listed, it gets the key");
    }
    for reply in [
        "HTTP/1.1 404 Not Found\r\ncontent-length: 11\r\n\r\ninside-word",
        "HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n{\"password\":\"inside-word\"}",
        "HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\ndata: inside-word\n\n",
    ] {
        let base_url = Some(start_canned_server(reply).await);
        let model = ModelRef { provider: "openai".to_owned(), name: "m".to_owned(), base_url };
        let client = ModelClient::new(&model, &[], ModelTimeouts::default()).expect("on this machine");
        let request = render_request(model.clone(), user_message());
        let error = client
            .call(&request, AttemptNumber(1), Some(&default_key()), &mut |_| {})
            .await
            .expect_err(reply);
        assert!(!error.to_string().contains("inside"), "{error}");
        let told = call_model(&model, ModelTimeouts::default(), Some(&default_key()))
            .await
            .expect_err(reply)
            .to_string();
        assert!(told.contains("inside-word"), "listed, its words are told: {told}");
    }
    let far = Some("http://192.0.2.1/v1".to_owned());
    let model = ModelRef { provider: "openai".to_owned(), name: "m".to_owned(), base_url: far };
    let refused = ModelClient::new(&model, &server_allowlist(), ModelTimeouts::default())
        .expect_err("nobody listed it");
    assert!(refused.to_string().contains("worker.base_urls"), "{refused}");
}

#[tokio::test]
async fn connection_refused_is_reported() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let base_url = Some(format!("http://{}", listener.local_addr().expect("bound")));
    drop(listener);
    let model = ModelRef { provider: "openai".to_owned(), name: "m".to_owned(), base_url };
    let error = call_model(&model, ModelTimeouts::default(), None).await.expect_err("nobody");
    assert!(matches!(&error, ModelError::Connect { detail } if detail.contains("refused")), "{error}");
    assert!(error.is_retryable());
}

#[test]
fn requests_refused_by_real_providers_are_refused() {
    let user = json!({"role": "user", "content": "go"});
    let tool_use =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}]});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "r"});
    let says = |blocks: Value| json!({"role": "user", "content": blocks});
    let tools = json!([{"name": "x", "description": "x", "input_schema": {"type": "object"}}]);
    let anthropic = |messages: Value| json!({"model": "m", "max_tokens": 9, "tools": tools, "stream": true, "messages": messages});
    let good = anthropic(json!([user, tool_use, says(json!([result("a")]))]));
    assert_eq!(super::request_check::check_anthropic(&good), Ok(()));
    let text = json!({"type": "text", "text": "t"});
    for (body, named) in [
        (json!({"model": "m", "stream": true, "messages": [user]}), "max_tokens"),
        (anthropic(json!([])), "at least one"),
        (
            json!({"model": "m", "max_tokens": 9, "stream": true,
                "messages": [user, tool_use, says(json!([result("a")]))]}),
            "must define tools",
        ),
        (anthropic(json!([tool_use])), "user role"),
        (anthropic(json!([user, tool_use])), "end with a user"),
        (anthropic(json!([user, tool_use, user])), "without tool_result"),
        (anthropic(json!([user, tool_use, tool_use, says(json!([result("a")]))])), "without tool_result"),
        (anthropic(json!([user, tool_use, says(json!([result("b")]))])), "unexpected tool_use_id"),
        (anthropic(json!([user, tool_use, says(json!([result("a"), result("a")]))])), "single result"),
        (anthropic(json!([user, tool_use, says(json!([text, result("a")]))])), "come first"),
        (anthropic(json!([says(json!([{"type": "text", "text": " "}]))])), "must not be empty"),
        (anthropic(json!([says(json!([result("a")]))])), "unexpected tool_use_id"),
    ] {
        let message = super::request_check::check_anthropic(&body).expect_err(named);
        assert!(message.contains(named), "{message}");
    }
    let openai = |messages: Value| json!({"model": "m", "stream": true, "messages": messages});
    let call = json!({"role": "assistant", "content": null,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}}]});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    assert_eq!(super::request_check::check_openai(&openai(json!([user, call, tool("a"), user]))), Ok(()));
    let mut broken = call.clone();
    broken["tool_calls"][0]["function"]["arguments"] = json!("{");
    for (messages, named) in [
        (json!([user, call]), "without response"),
        (json!([user, call, user]), "without response"),
        (json!([user, call, tool("b")]), "answers no preceding"),
        (json!([user, call, tool("a"), tool("a")]), "answers no preceding"),
        (json!([user, broken, tool("a")]), "JSON object"),
        (json!([user, {"role": "assistant", "content": null}]), "text is required"),
        (json!([{"role": "user", "content": ""}]), "must not be empty"),
    ] {
        let message = super::request_check::check_openai(&openai(messages)).expect_err(named);
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn requests_refused_by_responses_api_are_refused() {
    let user = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]});
    let says =
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]});
    let call = json!({"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
    let reasoning = |cipher: &str| {
        json!({"type": "reasoning", "encrypted_content": cipher,
        "summary": [{"type": "summary_text", "text": "hm"}]})
    };
    let cipher = docket_worker::model::thinking_signature("hm");
    let thinks = reasoning(&cipher);
    let tool = json!({"type": "function", "name": "x", "description": "x", "parameters": {"type": "object"}, "strict": false});
    let body = |input: Value| {
        json!({"model": "m", "max_output_tokens": 99, "store": false, "stream": true,
        "include": ["reasoning.encrypted_content"], "tools": [tool], "input": input})
    };
    let good = || body(json!([user, thinks, says, thinks, call, output("a"), user]));
    assert_eq!(super::responses_check::check_responses(&good()), Ok(()));
    let with = |item: &Value, field: &str, value: Value| {
        let mut item = item.clone();
        item[field] = value;
        item
    };
    for (body, named) in [
        (with(&good(), "store", Value::Null), "store"),
        (with(&good(), "max_tokens", json!(9)), "extra inputs"),
        (with(&good(), "max_output_tokens", json!(9)), "at least 16"),
        (with(&good(), "model", json!("gpt-4.1")), "not supported with this model"),
        (with(&good(), "tools", json!([with(&tool, "strict", Value::Null)])), "strict"),
        (body(json!([])), "at least one"),
        (body(json!([user, call])), "no tool output"),
        (body(json!([user, call, user])), "no tool output"),
        (body(json!([user, call, output("b")])), "no tool call found"),
        (body(json!([user, call, output("a"), call, output("a")])), "stands twice"),
        (body(json!([user, with(&call, "arguments", json!("{")), output("a")])), "JSON object"),
        (body(json!([user, with(&call, "id", json!("fc_1")), output("a")])), "extra inputs"),
        (body(json!([user, thinks, user])), "required following item"),
        (body(json!([user, with(&thinks, "id", json!("rs_1")), says, user])), "not persisted"),
        (body(json!([user, with(&thinks, "summary", Value::Null), says, user])), "summary"),
        (body(json!([user, reasoning("forged"), says, user])), "could not be verified"),
        (body(json!([user, with(&says, "role", json!("user"))])), "input_text"),
        (body(json!([says, user])), "begin and end"),
        (body(json!([user, says])), "begin and end"),
    ] {
        let message = super::responses_check::check_responses(&body).expect_err(named);
        assert!(message.contains(named), "{message}");
    }
}
