//! OpenAI Chat Completions, as OpenAI and the many servers that imitate it speak it: a request's body,
//! and the folding of its stream into an answer. Pure; the client moves the bytes.

use std::borrow::Cow;

use docket_schema::{
    message::{Role, StopReason, Usage},
    run::Effort,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    answer::{AnswerPart, Delta, OnDelta},
    client::OPENAI_BASE_URL,
    dialect::{AnswerFold, Dialect},
    error::ModelError,
    fold::{Folded, StreamFault},
    request::{
        Args, Layout, ModelRequest, Sorted, Spoken, SpokenPart, close_object, open_object, temperature,
        to_bytes, tool_name,
    },
};

/// How it is spoken to.
#[derive(Debug)]
pub(super) struct OpenAi;

impl Dialect for OpenAi {
    fn base_url(&self) -> &'static str {
        OPENAI_BASE_URL
    }

    fn endpoint(&self, base: &str) -> String {
        format!("{base}/chat/completions")
    }

    fn key_variable(&self) -> &'static str {
        "OPENAI_API_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("authorization", format!("Bearer {key}"))
    }

    fn layout(&self, request: &ModelRequest) -> Layout {
        layout(request)
    }

    fn speak(&self, turn: &Spoken<'_>, _: bool, out: &mut Vec<u8>) {
        speak(turn, out);
    }

    fn fold(&self) -> Box<dyn AnswerFold> {
        Box::new(Fold::default())
    }
}

/// What precedes the messages.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    /// OpenAI's own newer models refuse `max_tokens`; other servers know nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
}

/// What follows them.
#[derive(Serialize)]
struct Tail<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum Tool<'a> {
    Function { name: &'a str, description: &'a str, parameters: Sorted<'a> },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum BodyMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

/// Fields in which servers send reasoning; it goes back in the one it came in.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

fn layout(request: &ModelRequest) -> Layout {
    let own = request.completion_tokens
        || request.model.base_url.as_deref().is_none_or(|url| url.contains("://api.openai.com"));
    let mut head = open_object(&Head {
        model: &request.model.name,
        max_completion_tokens: own.then_some(request.max_output_tokens),
        max_tokens: (!own).then_some(request.max_output_tokens),
        temperature: temperature(request),
        reasoning_effort: request.effort.map(Effort::as_str),
    });
    head.extend_from_slice(br#","messages":["#);
    let has_messages = !request.system.trim().is_empty();
    if has_messages {
        head.extend(to_bytes(&BodyMessage::System { content: &request.system }));
    }
    let tools = request.tools.iter().map(|tool| Tool::Function {
        name: &tool.name,
        description: &tool.description,
        parameters: Sorted(&tool.input_schema),
    });
    let tail = close_object(&Tail {
        tools: tools.collect(),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    });
    Layout { head, tail: [b"]".as_slice(), &tail].concat(), has_messages, dialect: &OpenAi }
}

fn speak(turn: &Spoken<'_>, out: &mut Vec<u8>) {
    let mut messages = Vec::new();
    match turn.role {
        Role::User => user(turn, &mut messages),
        Role::Assistant => messages.push(assistant(turn)),
    }
    for (nth, message) in messages.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend(to_bytes(message));
    }
}

/// Results are messages of their own and stand before any text.
fn user<'a>(turn: &'a Spoken<'a>, messages: &mut Vec<BodyMessage<'a>>) {
    for part in &turn.parts {
        if let SpokenPart::ToolResult { call, text, is_error } = part {
            messages
                .push(BodyMessage::Tool { tool_call_id: &call.0, content: told_failure(text, *is_error) });
        }
    }
    if let Some(content) = joined_text(turn) {
        messages.push(BodyMessage::User { content });
    }
}

/// A result's text. The protocols have no mark for a failure, so the text says it.
pub(super) fn told_failure(text: &str, is_error: bool) -> Cow<'_, str> {
    let told = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if is_error && !told { Cow::Owned(format!("Error: {text}")) } else { Cow::Borrowed(text) }
}

fn assistant<'a>(turn: &'a Spoken<'a>) -> BodyMessage<'a> {
    let mut tool_calls = Vec::new();
    let (mut reasoning_content, mut reasoning) = (None, None);
    for part in &turn.parts {
        match part {
            SpokenPart::ToolUse(call) => {
                let arguments = serde_json::to_string(&Args(call)).expect("an object with string keys");
                let function = Function { name: tool_name(&call.name), arguments };
                tool_calls.push(ToolCall { id: &call.call.0, r#type: "function", function });
            }
            SpokenPart::Thinking(data) => {
                reasoning_content = data[REASONING_FIELDS[0]].as_str().or(reasoning_content);
                reasoning = data[REASONING_FIELDS[1]].as_str().or(reasoning);
            }
            SpokenPart::Text(_) | SpokenPart::ToolResult { .. } => {}
        }
    }
    let thoughts = turn.parts.iter().filter_map(|part| match part {
        SpokenPart::Thinking(data) => data[INLINE_THOUGHT].as_str(),
        SpokenPart::Text(_) | SpokenPart::ToolUse(_) | SpokenPart::ToolResult { .. } => None,
    });
    let thoughts: String = thoughts.collect();
    let content = match joined_text(turn) {
        said if thoughts.is_empty() => said,
        said => Some(Cow::Owned(thoughts + said.as_deref().unwrap_or_default())),
    };
    BodyMessage::Assistant { content, reasoning_content, reasoning, tool_calls }
}

fn joined_text<'a>(turn: &'a Spoken<'a>) -> Option<Cow<'a, str>> {
    let mut texts = turn.parts.iter().filter_map(|part| match part {
        SpokenPart::Text(text) => Some(&**text),
        SpokenPart::Thinking(_) | SpokenPart::ToolUse(_) | SpokenPart::ToolResult { .. } => None,
    });
    let first = texts.next()?;
    let rest: Vec<&str> = texts.collect();
    if rest.is_empty() {
        return Some(Cow::Borrowed(first));
    }
    Some(Cow::Owned(format!("{first}\n\n{}", rest.join("\n\n"))))
}

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Fold {
    reasoning: Map<String, Value>,
    text: String,
    calls: Vec<Call>,
    stop: Option<StopReason>,
    usage: Usage,
    ended: bool,
}

#[derive(Debug)]
struct Call {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl AnswerFold for Fold {
    fn event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamFault> {
        if data.trim() == "[DONE]" {
            self.ended = true;
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|_| StreamFault::NotJson(data.to_owned()))?;
        if !event["error"].is_null() {
            return Err(StreamFault::Refused(data.as_bytes().to_vec()));
        }
        if event["usage"].is_object() {
            self.usage = usage(&event["usage"]);
        }
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        for field in REASONING_FIELDS {
            if let Some(piece) = delta[field].as_str().filter(|piece| !piece.is_empty()) {
                on_delta(Delta::Thinking(piece));
                match self.reasoning.get_mut(field) {
                    Some(Value::String(text)) => text.push_str(piece),
                    Some(_) | None => drop(self.reasoning.insert(field.to_owned(), piece.into())),
                }
            }
        }
        for field in ["content", "refusal"] {
            if let Some(piece) = delta[field].as_str().filter(|piece| !piece.is_empty()) {
                self.text.push_str(piece);
                on_delta(Delta::Text(piece));
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, on_delta);
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.stop = Some(stop_reason(reason));
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamFault> {
        if !body["choices"].is_array() {
            return Ok(false);
        }
        let choice = &body["choices"][0];
        let choice = json!({ "delta": choice["message"], "finish_reason": choice["finish_reason"] });
        let event = json!({ "choices": [choice], "usage": body["usage"], "error": body["error"] });
        self.ended = true;
        self.event(&event.to_string(), on_delta)?;
        Ok(true)
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn finish(self: Box<Self>) -> Result<Folded, ModelError> {
        let stop_reason = self.stop.ok_or(ModelError::CutStream)?;
        let mut parts = Vec::with_capacity(self.calls.len() + 2);
        if !self.reasoning.is_empty() {
            let data = Value::Object(self.reasoning);
            parts.push(AnswerPart::Thinking { provider: "openai".to_owned(), data });
        }
        let (thought, said) = thought_and_said(&self.text);
        if !thought.trim().is_empty() {
            let data = json!({ INLINE_THOUGHT: thought });
            parts.push(AnswerPart::Thinking { provider: "openai".to_owned(), data });
        }
        if !said.is_empty() {
            parts.push(AnswerPart::Text(said.to_owned()));
        }
        let call = |call: Call| AnswerPart::ToolUse {
            provider_id: call.id,
            name: call.name,
            args_json: call.arguments,
        };
        parts.extend(self.calls.into_iter().map(call));
        Ok(Folded { parts, stop_reason, usage: self.usage })
    }
}

impl Fold {
    /// Takes a piece of a call. Servers differ: some send no index, some the same index for all calls,
    /// each then with an id and a name of its own; some send the id with every piece.
    fn call(&mut self, piece: &Value, on_delta: OnDelta<'_>) {
        let function = &piece["function"];
        let id = piece["id"].as_str().unwrap_or_default();
        let name = function["name"].as_str().unwrap_or_default();
        let index = piece["index"].as_u64();
        let open = match index {
            Some(index) => self.calls.iter_mut().rfind(|call| call.index == index),
            None if name.is_empty() => self.calls.last_mut(),
            None => None,
        };
        let another =
            |call: &Call| !name.is_empty() && !id.is_empty() && !call.id.is_empty() && call.id != id;
        let arguments = match &function["arguments"] {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            object @ Value::Object(_) => Cow::Owned(object.to_string()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Cow::Borrowed(""),
        };
        match open.filter(|call| !another(call)) {
            Some(call) => {
                call.arguments.push_str(&arguments);
                if call.name.is_empty() {
                    call.name.push_str(name);
                }
                if call.id.is_empty() {
                    call.id.push_str(id);
                }
            }
            None => {
                on_delta(Delta::ToolUse(name));
                self.calls.push(Call {
                    index: index.unwrap_or(self.calls.len() as u64),
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: arguments.into_owned(),
                });
            }
        }
    }
}

/// Where a thought is kept that came as text, tags and all, to go back as it came.
const INLINE_THOUGHT: &str = "think";
/// How models mark thoughts in their text, where no server takes them out.
const THOUGHT: (&str, &str) = ("<think>", "</think>");

/// A text's thought, with its tags and the blanks behind it, and the rest. One that is not closed is all there is:
/// the answer ended before anything was said. Some templates open it themselves, so that only its end is seen, which
/// then stands on a line of its own.
fn thought_and_said(text: &str) -> (&str, &str) {
    let (open, close) = THOUGHT;
    let end = match text.find(close).map(|at| at + close.len()) {
        Some(end) if text.trim_start().starts_with(open) => end,
        Some(end) if !text.contains(open) => {
            let line = text[..end].rsplit('\n').next().unwrap_or_default();
            let alone =
                line.trim() == close && text[end..].lines().next().is_none_or(|rest| rest.trim().is_empty());
            if alone { end } else { 0 }
        }
        None if text.trim_start().starts_with(open) => text.len(),
        Some(_) | None => 0,
    };
    let said = if end == 0 { text } else { text[end..].trim_start() };
    text.split_at(text.len() - said.len())
}

/// Here the cached tokens are part of the prompt's; our counts are apart.
fn usage(usage: &Value) -> Usage {
    let details = &usage["prompt_tokens_details"];
    let tokens = |value: &Value| value.as_u64().unwrap_or_default();
    let (read, write) = (tokens(&details["cached_tokens"]), tokens(&details["cache_write_tokens"]));
    Usage {
        input_tokens: tokens(&usage["prompt_tokens"]).saturating_sub(read.saturating_add(write)),
        output_tokens: tokens(&usage["completion_tokens"]),
        cache_read_tokens: read,
        cache_write_tokens: write,
        estimated: false,
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}
