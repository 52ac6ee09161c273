//! A worked example: a provider of one's own. All of it stands here but its place in `Provider`, which is what gives it a name:
//! the body that it is sent, its address and key, and how its answers come. It is spoken to over HTTP, by the client that
//! speaks to the others.

use std::{collections::HashMap, sync::Arc, sync::Mutex};

use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use docket_schema::{
    content::Content,
    message::{Message, ModelRef, Part, Role, StopReason, Usage},
};
use serde_json::{Value, json};

use super::{
    AnswerPart, Delta, ModelClient, ModelError, ModelRequest, OnDelta, Rendered, Secret, Timeouts,
    dialect::{AnswerFold, Dialect},
    fold::{Folded, StreamFault},
    request::{Layout, Spoken, SpokenPart, render_as, to_bytes},
    scripted::Attempt,
};

/// Takes `{"model": …, "said": [[side, text], …]}`, and says its words one event each, then what it counted.
#[derive(Debug)]
struct Parrot;

impl Dialect for Parrot {
    fn base_url(&self) -> &'static str {
        "https://parrot.example"
    }

    fn endpoint(&self, base: &str) -> String {
        format!("{base}/say")
    }

    fn key_variable(&self) -> &'static str {
        "PARROT_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-parrot", key.to_owned())
    }

    fn layout(&self, request: &ModelRequest) -> Layout {
        let head = format!(r#"{{"model":{},"said":["#, Value::from(request.model.name.as_str()));
        Layout { head: head.into_bytes(), tail: b"]}".to_vec(), has_messages: false, dialect: &Parrot }
    }

    fn speak(&self, turn: &Spoken<'_>, _: bool, out: &mut Vec<u8>) {
        let texts = turn.parts.iter().filter_map(|part| match part {
            SpokenPart::Text(text) | SpokenPart::ToolResult { text, .. } => Some(text.as_ref()),
            SpokenPart::Thinking(_) | SpokenPart::ToolUse(_) => None,
        });
        let side = match turn.role {
            Role::User => "you",
            Role::Assistant => "me",
        };
        out.extend(to_bytes(&json!([side, texts.collect::<Vec<_>>().join("\n")])));
    }

    fn fold(&self) -> Box<dyn AnswerFold> {
        Box::new(Words::default())
    }
}

#[derive(Debug, Default)]
struct Words {
    text: String,
    usage: Option<Usage>,
}

impl AnswerFold for Words {
    fn event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamFault> {
        let event: Value = serde_json::from_str(data).map_err(|_| StreamFault::NotJson(data.to_owned()))?;
        if let Some(word) = event["word"].as_str() {
            on_delta(Delta::Text(word));
            self.text.push_str(word);
        }
        if let (Some(input_tokens), Some(output_tokens)) = (event["heard"].as_u64(), event["said"].as_u64()) {
            self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
        }
        Ok(())
    }

    fn whole(&mut self, _: &Value, _: OnDelta<'_>) -> Result<bool, StreamFault> {
        Ok(false)
    }

    fn is_whole(&self) -> bool {
        self.ended()
    }

    fn ended(&self) -> bool {
        self.usage.is_some()
    }

    fn finish(self: Box<Self>) -> Result<Folded, ModelError> {
        let usage = self.usage.ok_or(ModelError::CutStream)?;
        Ok(Folded { parts: vec![AnswerPart::Text(self.text)], stop_reason: StopReason::EndTurn, usage })
    }
}

fn request(base_url: Option<String>) -> ModelRequest {
    let say =
        |role, text: &str| Message { role, parts: vec![Part::Text { text: Content::Text(text.to_owned()) }] };
    ModelRequest {
        model: ModelRef { provider: "parrot".to_owned(), name: "grey".to_owned(), base_url },
        system: String::new(),
        tools: Vec::new(),
        messages: vec![say(Role::User, "hello"), say(Role::Assistant, "hello"), say(Role::User, "good day")],
        max_output_tokens: 100,
        temperature_milli: None,
        effort: None,
        completion_tokens: false,
        thought: None,
    }
}

#[test]
fn its_body_is_its_own_to_the_byte() {
    let body = render_as(&request(None), (&Parrot, "parrot"), &HashMap::new()).expect("renders");
    let expected = r#"{"model":"grey","said":[["you","hello"],["me","hello"],["you","good day"]]}"#;
    assert_eq!(String::from_utf8(body).expect("text"), expected);
}

#[tokio::test]
async fn it_is_spoken_to_over_http_with_its_key() {
    type Heard = Arc<Mutex<Vec<(Option<String>, Bytes)>>>;
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let say = move |headers: HeaderMap, body: Bytes| {
        let key = headers.get("x-parrot").map(|key| key.to_str().expect("ASCII").to_owned());
        hears.lock().expect("nobody panics").push((key, body));
        async {
            "data: {\"word\":\"good \"}\n\ndata: {\"word\":\"day\"}\n\ndata: {\"heard\":9,\"said\":2}\n\n"
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let server =
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/say", post(say))).await });
    let request = request(Some(base.clone()));
    let body = Bytes::from(render_as(&request, (&Parrot, "parrot"), &HashMap::new()).expect("renders"));
    let client =
        ModelClient::speaking(&Parrot, &request.model, &[base], Timeouts::default()).expect("a client");
    let rendered = Rendered { model: request.model, body: body.clone() };
    let key = Secret::new("polly").expect("a key");
    let mut told = String::new();
    let mut tell = |delta: Delta<'_>| told.push_str(&format!("{delta:?} "));
    let answer = client.call(&rendered, Attempt(1), Some(&key), &mut tell).await.expect("an answer");
    assert_eq!(answer.parts, [AnswerPart::Text("good day".to_owned())]);
    assert_eq!(
        (answer.usage.input_tokens, answer.usage.output_tokens, answer.stop_reason),
        (9, 2, StopReason::EndTurn)
    );
    assert!(told.contains("good ") && told.contains("day"), "{told}");
    assert_eq!(*heard.lock().expect("nobody panics"), [(Some("polly".to_owned()), body)]);
    server.abort();
}
