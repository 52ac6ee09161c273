//! A worked example: a custom provider. Everything is in this file except its entry in `ModelProvider`, which
//! gives it a name: the request body, address and key, and the format of its replies. It is called over HTTP
//! by the same client as the others.

use std::{collections::HashMap, sync::Arc, sync::Mutex};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use docket_schema::{
    content::Content,
    message::{Message, MessagePart, MessageRole, ModelRef, StopReason, TokenUsage},
};
use serde_json::{Value, json};

use super::{
    ModelClient, ModelError, ModelRequest, ModelTimeouts, OnDelta, RenderedRequest, ReplyDelta, ReplyPart,
    Secret,
    provider_protocol::{ProviderProtocol, StreamDecoder},
    request::{BodyFrame, ConversationTurn, TurnPart, render_with_protocol, to_json_bytes},
    scripted::AttemptNumber,
    stream_decoder::{DecodedReply, StreamError},
};

/// Takes `{"model": …, "said": [[side, text], …]}`, and streams its words, one per event, followed by the
/// token counts.
#[derive(Debug)]
struct ParrotProtocol;

impl ProviderProtocol for ParrotProtocol {
    fn base_url(&self) -> &'static str {
        "https://parrot.example"
    }

    fn endpoint_url(&self, base: &str) -> String {
        format!("{base}/say")
    }

    fn key_variable(&self) -> &'static str {
        "PARROT_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-parrot", key.to_owned())
    }

    fn body_frame(&self, request: &ModelRequest) -> BodyFrame {
        let head = format!(r#"{{"model":{},"said":["#, Value::from(request.model.name.as_str()));
        BodyFrame {
            head: head.into_bytes(),
            tail: b"]}".to_vec(),
            has_messages: false,
            protocol: &ParrotProtocol,
        }
    }

    fn write_turn(&self, turn: &ConversationTurn<'_>, _: bool, out: &mut Vec<u8>) {
        let texts = turn.parts.iter().filter_map(|part| match part {
            TurnPart::Text(text) | TurnPart::ToolResult { text, .. } => Some(text.as_ref()),
            TurnPart::Thinking(_) | TurnPart::ToolUse(_) => None,
        });
        let side = match turn.role {
            MessageRole::User => "you",
            MessageRole::Assistant => "me",
        };
        out.extend(to_json_bytes(&json!([side, texts.collect::<Vec<_>>().join("\n")])));
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(ParrotDecoder::default())
    }
}

#[derive(Debug, Default)]
struct ParrotDecoder {
    text: String,
    usage: Option<TokenUsage>,
}

impl StreamDecoder for ParrotDecoder {
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError> {
        let event: Value = serde_json::from_str(data).map_err(|_| StreamError::NotJson(data.to_owned()))?;
        if let Some(word) = event["word"].as_str() {
            on_delta(ReplyDelta::Text(word));
            self.text.push_str(word);
        }
        if let (Some(input_tokens), Some(output_tokens)) = (event["heard"].as_u64(), event["said"].as_u64()) {
            self.usage = Some(TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() });
        }
        Ok(())
    }

    fn push_full_reply(&mut self, _: &Value, _: OnDelta<'_>) -> Result<bool, StreamError> {
        Ok(false)
    }

    fn is_complete(&self) -> bool {
        self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.usage.is_some()
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply, ModelError> {
        let usage = self.usage.ok_or(ModelError::CutStream)?;
        Ok(DecodedReply { parts: vec![ReplyPart::Text(self.text)], stop_reason: StopReason::EndTurn, usage })
    }
}

fn parrot_request(base_url: Option<String>) -> ModelRequest {
    let say = |role, text: &str| Message {
        role,
        parts: vec![MessagePart::Text { text: Content::Text(text.to_owned()) }],
    };
    ModelRequest {
        model: ModelRef { provider: "parrot".to_owned(), name: "grey".to_owned(), base_url },
        system: String::new(),
        tools: Vec::new(),
        messages: vec![
            say(MessageRole::User, "hello"),
            say(MessageRole::Assistant, "hello"),
            say(MessageRole::User, "good day"),
        ],
        max_output_tokens: 100,
        temperature_milli: None,
        effort: None,
        use_completion_tokens_field: false,
        began_with_thought: None,
    }
}

#[test]
fn custom_protocol_renders_its_own_body() {
    let body = render_with_protocol(&parrot_request(None), (&ParrotProtocol, "parrot"), &HashMap::new())
        .expect("renders");
    let expected = r#"{"model":"grey","said":[["you","hello"],["me","hello"],["you","good day"]]}"#;
    assert_eq!(String::from_utf8(body).expect("text"), expected);
}

#[tokio::test]
async fn custom_protocol_is_called_over_http_with_its_key() {
    type Heard = Arc<Mutex<Vec<(Option<String>, Bytes)>>>;
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let say = move |headers: HeaderMap, body: Bytes| {
        let key = headers.get("x-parrot").map(|key| key.to_str().expect("ASCII").to_owned());
        hears.lock().expect("no holder panics").push((key, body));
        async {
            "data: {\"word\":\"good \"}\n\ndata: {\"word\":\"day\"}\n\ndata: {\"heard\":9,\"said\":2}\n\n"
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let server =
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/say", post(say))).await });
    let request = parrot_request(Some(base.clone()));
    let body = Bytes::from(
        render_with_protocol(&request, (&ParrotProtocol, "parrot"), &HashMap::new()).expect("renders"),
    );
    let client =
        ModelClient::with_protocol(&ParrotProtocol, &request.model, &[base], ModelTimeouts::default())
            .expect("a client");
    let rendered = RenderedRequest { model: request.model, body: body.clone() };
    let key = Secret::new("polly").expect("a key");
    let mut told = String::new();
    let mut tell = |delta: ReplyDelta<'_>| told.push_str(&format!("{delta:?} "));
    let answer = client.call(&rendered, AttemptNumber(1), Some(&key), &mut tell).await.expect("an answer");
    assert_eq!(answer.parts, [ReplyPart::Text("good day".to_owned())]);
    assert_eq!(
        (answer.usage.input_tokens, answer.usage.output_tokens, answer.stop_reason),
        (9, 2, StopReason::EndTurn)
    );
    assert!(told.contains("good ") && told.contains("day"), "{told}");
    assert_eq!(*heard.lock().expect("no holder panics"), [(Some("polly".to_owned()), body)]);
    server.abort();
}
