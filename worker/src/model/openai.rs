//! OpenAI Chat Completions, as implemented by OpenAI and many compatible servers: renders request bodies and
//! decodes streams into replies. Pure; the client performs the I/O.

use std::borrow::Cow;

use docket_schema::{
    message::{MessageRole, StopReason, TokenUsage},
    run::ReasoningEffort,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    client::OPENAI_BASE_URL,
    error::ModelError,
    provider_protocol::{ProviderProtocol, StreamDecoder},
    reply::{OnDelta, ReplyDelta, ReplyPart},
    request::{
        BodyFrame, ConversationTurn, ModelRequest, SortedJson, ToolArguments, TurnPart, close_object,
        open_object, sanitize_tool_name, temperature_value, to_json_bytes,
    },
    stream_decoder::{DecodedReply, StreamError},
};

/// Implementation of the OpenAI Chat Completions protocol.
#[derive(Debug)]
pub(super) struct ChatCompletionsProtocol;

impl ProviderProtocol for ChatCompletionsProtocol {
    fn base_url(&self) -> &'static str {
        OPENAI_BASE_URL
    }

    fn endpoint_url(&self, base: &str) -> String {
        format!("{base}/chat/completions")
    }

    fn key_variable(&self) -> &'static str {
        "OPENAI_API_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("authorization", format!("Bearer {key}"))
    }

    fn body_frame(&self, request: &ModelRequest) -> BodyFrame {
        body_frame(request)
    }

    fn write_turn(&self, turn: &ConversationTurn<'_>, _: bool, out: &mut Vec<u8>) {
        write_turn(turn, out);
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(ChatDecoder::default())
    }
}

/// The fields before the messages.
#[derive(Serialize)]
struct ChatHead<'a> {
    model: &'a str,
    /// OpenAI's newer models reject `max_tokens`; other servers support nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
}

/// The fields after the messages.
#[derive(Serialize)]
struct ChatTail<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatTool<'a>>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum ChatTool<'a> {
    Function { name: &'a str, description: &'a str, parameters: SortedJson<'a> },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum ChatMessage<'a> {
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
        tool_calls: Vec<ChatToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
struct ChatToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: ChatFunctionCall<'a>,
}

#[derive(Serialize)]
struct ChatFunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

/// Fields in which servers send reasoning; it is sent back in the field it arrived in.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

fn body_frame(request: &ModelRequest) -> BodyFrame {
    let own = request.use_completion_tokens_field
        || request.model.base_url.as_deref().is_none_or(|url| url.contains("://api.openai.com"));
    let mut head = open_object(&ChatHead {
        model: &request.model.name,
        max_completion_tokens: own.then_some(request.max_output_tokens),
        max_tokens: (!own).then_some(request.max_output_tokens),
        temperature: temperature_value(request),
        reasoning_effort: request.effort.map(ReasoningEffort::as_str),
    });
    head.extend_from_slice(br#","messages":["#);
    let has_messages = !request.system.trim().is_empty();
    if has_messages {
        head.extend(to_json_bytes(&ChatMessage::System { content: &request.system }));
    }
    let tools = request.tools.iter().map(|tool| ChatTool::Function {
        name: &tool.name,
        description: &tool.description,
        parameters: SortedJson(&tool.input_schema),
    });
    let tail = close_object(&ChatTail {
        tools: tools.collect(),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    });
    BodyFrame {
        head,
        tail: [b"]".as_slice(), &tail].concat(),
        has_messages,
        protocol: &ChatCompletionsProtocol,
    }
}

fn write_turn(turn: &ConversationTurn<'_>, out: &mut Vec<u8>) {
    let mut messages = Vec::new();
    match turn.role {
        MessageRole::User => push_user_messages(turn, &mut messages),
        MessageRole::Assistant => messages.push(assistant_message(turn)),
    }
    for (nth, message) in messages.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend(to_json_bytes(message));
    }
}

/// Tool results are separate messages that precede any text.
fn push_user_messages<'a>(turn: &'a ConversationTurn<'a>, messages: &mut Vec<ChatMessage<'a>>) {
    for part in &turn.parts {
        if let TurnPart::ToolResult { call, text, is_error } = part {
            messages.push(ChatMessage::Tool {
                tool_call_id: &call.0,
                content: tool_result_text(text, *is_error),
            });
        }
    }
    if let Some(content) = join_texts(turn) {
        messages.push(ChatMessage::User { content });
    }
}

/// Returns a tool result's text. The OpenAI protocols have no failure flag, so the text says it.
pub(super) fn tool_result_text(text: &str, is_error: bool) -> Cow<'_, str> {
    let told = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if is_error && !told { Cow::Owned(format!("Error: {text}")) } else { Cow::Borrowed(text) }
}

fn assistant_message<'a>(turn: &'a ConversationTurn<'a>) -> ChatMessage<'a> {
    let mut tool_calls = Vec::new();
    let (mut reasoning_content, mut reasoning) = (None, None);
    for part in &turn.parts {
        match part {
            TurnPart::ToolUse(call) => {
                let arguments =
                    serde_json::to_string(&ToolArguments(call)).expect("an object with string keys");
                let function = ChatFunctionCall { name: sanitize_tool_name(&call.name), arguments };
                tool_calls.push(ChatToolCall { id: &call.call.0, r#type: "function", function });
            }
            TurnPart::Thinking(data) => {
                reasoning_content = data[REASONING_FIELDS[0]].as_str().or(reasoning_content);
                reasoning = data[REASONING_FIELDS[1]].as_str().or(reasoning);
            }
            TurnPart::Text(_) | TurnPart::ToolResult { .. } => {}
        }
    }
    let thoughts = turn.parts.iter().filter_map(|part| match part {
        TurnPart::Thinking(data) => data[INLINE_THOUGHT_KEY].as_str(),
        TurnPart::Text(_) | TurnPart::ToolUse(_) | TurnPart::ToolResult { .. } => None,
    });
    let thoughts: String = thoughts.collect();
    let content = match join_texts(turn) {
        said if thoughts.is_empty() => said,
        said => Some(Cow::Owned(thoughts + said.as_deref().unwrap_or_default())),
    };
    ChatMessage::Assistant { content, reasoning_content, reasoning, tool_calls }
}

fn join_texts<'a>(turn: &'a ConversationTurn<'a>) -> Option<Cow<'a, str>> {
    let mut texts = turn.parts.iter().filter_map(|part| match part {
        TurnPart::Text(text) => Some(&**text),
        TurnPart::Thinking(_) | TurnPart::ToolUse(_) | TurnPart::ToolResult { .. } => None,
    });
    let first = texts.next()?;
    let rest: Vec<&str> = texts.collect();
    if rest.is_empty() {
        return Some(Cow::Borrowed(first));
    }
    Some(Cow::Owned(format!("{first}\n\n{}", rest.join("\n\n"))))
}

/// Decoder state: the reply so far.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    reasoning: Map<String, Value>,
    text: String,
    calls: Vec<PartialToolCall>,
    stop_reason: Option<StopReason>,
    usage: TokenUsage,
    is_finished: bool,
}

#[derive(Debug)]
struct PartialToolCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl StreamDecoder for ChatDecoder {
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError> {
        if data.trim() == "[DONE]" {
            self.is_finished = true;
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|_| StreamError::NotJson(data.to_owned()))?;
        if !event["error"].is_null() {
            return Err(StreamError::ProviderError(data.as_bytes().to_vec()));
        }
        if event["usage"].is_object() {
            self.usage = parse_usage(&event["usage"]);
        }
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        for field in REASONING_FIELDS {
            if let Some(piece) = delta[field].as_str().filter(|piece| !piece.is_empty()) {
                on_delta(ReplyDelta::Thinking(piece));
                match self.reasoning.get_mut(field) {
                    Some(Value::String(text)) => text.push_str(piece),
                    Some(_) | None => drop(self.reasoning.insert(field.to_owned(), piece.into())),
                }
            }
        }
        for field in ["content", "refusal"] {
            if let Some(piece) = delta[field].as_str().filter(|piece| !piece.is_empty()) {
                self.text.push_str(piece);
                on_delta(ReplyDelta::Text(piece));
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.push_call_delta(call, on_delta);
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.stop_reason = Some(parse_stop_reason(reason));
        }
        Ok(())
    }

    fn push_full_reply(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamError> {
        if !body["choices"].is_array() {
            return Ok(false);
        }
        let choice = &body["choices"][0];
        let choice = json!({ "delta": choice["message"], "finish_reason": choice["finish_reason"] });
        let event = json!({ "choices": [choice], "usage": body["usage"], "error": body["error"] });
        self.is_finished = true;
        self.push_event(&event.to_string(), on_delta)?;
        Ok(true)
    }

    fn is_complete(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply, ModelError> {
        let stop_reason = self.stop_reason.ok_or(ModelError::CutStream)?;
        let mut parts = Vec::with_capacity(self.calls.len() + 2);
        if !self.reasoning.is_empty() {
            let data = Value::Object(self.reasoning);
            parts.push(ReplyPart::Thinking { provider: "openai".to_owned(), data });
        }
        let (thought, said) = split_inline_thought(&self.text);
        if !thought.trim().is_empty() {
            let data = json!({ INLINE_THOUGHT_KEY: thought });
            parts.push(ReplyPart::Thinking { provider: "openai".to_owned(), data });
        }
        if !said.is_empty() {
            parts.push(ReplyPart::Text(said.to_owned()));
        }
        let call = |call: PartialToolCall| ReplyPart::ToolUse {
            provider_id: call.id,
            name: call.name,
            args_json: call.arguments,
        };
        parts.extend(self.calls.into_iter().map(call));
        Ok(DecodedReply { parts, stop_reason, usage: self.usage })
    }
}

impl ChatDecoder {
    /// Adds a part of a tool call. Servers differ: some send no index; some send the same index for all
    /// calls, each with its own id and name; some send the id with every part.
    fn push_call_delta(&mut self, piece: &Value, on_delta: OnDelta<'_>) {
        let function = &piece["function"];
        let id = piece["id"].as_str().unwrap_or_default();
        let name = function["name"].as_str().unwrap_or_default();
        let index = piece["index"].as_u64();
        let open = match index {
            Some(index) => self.calls.iter_mut().rfind(|call| call.index == index),
            None if name.is_empty() => self.calls.last_mut(),
            None => None,
        };
        let another = |call: &PartialToolCall| {
            !name.is_empty() && !id.is_empty() && !call.id.is_empty() && call.id != id
        };
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
                on_delta(ReplyDelta::ToolUse(name));
                self.calls.push(PartialToolCall {
                    index: index.unwrap_or(self.calls.len() as u64),
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: arguments.into_owned(),
                });
            }
        }
    }
}

/// Key under which inline reasoning is stored, with its tags, so that it is sent back unchanged.
const INLINE_THOUGHT_KEY: &str = "think";
/// The tags with which models mark reasoning in their text, if the server does not extract it.
const THOUGHT_TAGS: (&str, &str) = ("<think>", "</think>");

/// Splits a text into its inline reasoning (with tags and trailing white space) and the rest. Reasoning
/// without a closing tag is the complete text: the reply ended before any answer. Some chat templates contain
/// the opening tag, so that only the closing tag appears, on a line of its own.
fn split_inline_thought(text: &str) -> (&str, &str) {
    let (open, close) = THOUGHT_TAGS;
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

/// This protocol counts cached tokens as part of the prompt tokens; ours are separate.
fn parse_usage(usage: &Value) -> TokenUsage {
    let details = &usage["prompt_tokens_details"];
    let tokens = |value: &Value| value.as_u64().unwrap_or_default();
    let (read, write) = (tokens(&details["cached_tokens"]), tokens(&details["cache_write_tokens"]));
    TokenUsage {
        input_tokens: tokens(&usage["prompt_tokens"]).saturating_sub(read.saturating_add(write)),
        output_tokens: tokens(&usage["completion_tokens"]),
        cache_read_tokens: read,
        cache_write_tokens: write,
        estimated: false,
    }
}

fn parse_stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}
