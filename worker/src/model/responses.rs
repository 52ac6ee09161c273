//! OpenAI Responses, used without state on the provider's side: renders request bodies and decodes streams
//! into replies. Pure; the client performs the I/O.
//!
//! Nothing is stored by the provider, so every request carries the complete conversation. Reasoning is sent
//! back in its encrypted form without its id: an id would make the provider look for an item that it never
//! stored.

use std::{borrow::Cow, collections::BTreeMap};

use docket_schema::message::{MessageRole, StopReason, TokenUsage};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    client::OPENAI_BASE_URL,
    error::ModelError,
    openai::tool_result_text,
    provider_protocol::{ProviderProtocol, StreamDecoder},
    reply::{OnDelta, ReplyDelta, ReplyPart},
    request::{
        BodyFrame, ConversationTurn, ModelRequest, SortedJson, ToolArguments, TurnPart, close_object,
        open_object, sanitize_tool_name, temperature_value, to_json_bytes,
    },
    stream_decoder::{DecodedReply, StreamError},
};

/// Implementation of the OpenAI Responses protocol.
#[derive(Debug)]
pub(super) struct OpenAiResponsesProtocol;

impl ProviderProtocol for OpenAiResponsesProtocol {
    fn base_url(&self) -> &'static str {
        OPENAI_BASE_URL
    }

    fn endpoint_url(&self, base: &str) -> String {
        format!("{base}/responses")
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
        Box::new(ResponsesDecoder::default())
    }
}

/// The fields before the conversation.
#[derive(Serialize)]
struct ResponsesHead<'a> {
    model: &'a str,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ResponsesTool<'a>>,
}

#[derive(Serialize)]
struct ReasoningOptions {
    effort: &'static str,
}

/// The fields after the conversation.
#[derive(Serialize)]
struct ResponsesTail {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct ResponsesTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: SortedJson<'a>,
    /// Set explicitly, because the protocol's default is strict, which does not allow optional arguments.
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesInputItem<'a> {
    Message { role: &'static str, content: Vec<ResponsesContent<'a>> },
    Reasoning { summary: SortedJson<'a>, encrypted_content: &'a str },
    FunctionCall { call_id: &'a str, name: Cow<'a, str>, arguments: String },
    FunctionCallOutput { call_id: &'a str, output: Cow<'a, str> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesContent<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
}

/// Reasoning that the provider does not store must be requested in encrypted form.
const ENCRYPTED_REASONING: [&str; 1] = ["reasoning.encrypted_content"];

/// Name prefixes of models without reasoning: they reject a request for [`ENCRYPTED_REASONING`].
const NON_REASONING_MODELS: [&str; 5] = ["gpt-4", "gpt-3.5", "chatgpt-", "ft:gpt-4", "ft:gpt-3.5"];

fn is_reasoning_model(model: &str) -> bool {
    !NON_REASONING_MODELS.iter().any(|begin| model.starts_with(begin)) && !model.contains("-chat")
}

fn body_frame(request: &ModelRequest) -> BodyFrame {
    let tools = request.tools.iter().map(|tool| ResponsesTool {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: SortedJson(&tool.input_schema),
        strict: false,
    });
    let mut head = open_object(&ResponsesHead {
        model: &request.model.name,
        max_output_tokens: request.max_output_tokens,
        temperature: temperature_value(request),
        reasoning: request.effort.map(|effort| ReasoningOptions { effort: effort.as_str() }),
        instructions: (!request.system.trim().is_empty()).then_some(request.system.as_str()),
        tools: tools.collect(),
    });
    head.extend_from_slice(br#","input":["#);
    let include: &[&str] = if is_reasoning_model(&request.model.name) { &ENCRYPTED_REASONING } else { &[] };
    let tail =
        [b"]".as_slice(), &close_object(&ResponsesTail { include, store: false, stream: true })].concat();
    BodyFrame { head, tail, has_messages: false, protocol: &OpenAiResponsesProtocol }
}

fn write_turn(turn: &ConversationTurn<'_>, out: &mut Vec<u8>) {
    let items = match turn.role {
        MessageRole::User => user_items(turn),
        MessageRole::Assistant => assistant_items(turn),
    };
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend(to_json_bytes(item));
    }
}

/// Results are separate items that precede any text.
fn user_items<'a>(turn: &'a ConversationTurn<'a>) -> Vec<ResponsesInputItem<'a>> {
    let mut items = Vec::new();
    let mut content = Vec::new();
    for part in &turn.parts {
        match part {
            TurnPart::ToolResult { call, text, is_error } => {
                items.push(ResponsesInputItem::FunctionCallOutput {
                    call_id: &call.0,
                    output: tool_result_text(text, *is_error),
                });
            }
            TurnPart::Text(text) => content.push(ResponsesContent::InputText { text }),
            TurnPart::Thinking(_) | TurnPart::ToolUse(_) => {}
        }
    }
    if !content.is_empty() {
        items.push(ResponsesInputItem::Message { role: "user", content });
    }
    items
}

fn assistant_items<'a>(turn: &'a ConversationTurn<'a>) -> Vec<ResponsesInputItem<'a>> {
    const NOTHING: &Value = &Value::Array(Vec::new());
    let item = |part: &'a TurnPart<'a>| match part {
        TurnPart::Text(text) => Some(ResponsesInputItem::Message {
            role: "assistant",
            content: vec![ResponsesContent::OutputText { text }],
        }),
        TurnPart::Thinking(data) => {
            encrypted_content(data).map(|encrypted_content| ResponsesInputItem::Reasoning {
                summary: SortedJson(
                    data.get("summary").filter(|summary| summary.is_array()).unwrap_or(NOTHING),
                ),
                encrypted_content,
            })
        }
        TurnPart::ToolUse(call) => Some(ResponsesInputItem::FunctionCall {
            call_id: &call.call.0,
            name: sanitize_tool_name(&call.name),
            arguments: serde_json::to_string(&ToolArguments(call)).expect("an object with string keys"),
        }),
        TurnPart::ToolResult { .. } => None,
    };
    turn.parts.iter().filter_map(item).collect()
}

fn encrypted_content(reasoning: &Value) -> Option<&str> {
    reasoning["encrypted_content"].as_str().filter(|cipher| !cipher.is_empty())
}

/// Decoder state: the reply so far.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: BTreeMap<u64, ResponseItem>,
    /// Whether a part of the reply is a refusal.
    has_refusal: bool,
    end: Option<ResponseEnd>,
    usage: TokenUsage,
}

#[derive(Debug)]
enum ResponseEnd {
    Completed,
    Incomplete(StopReason),
}

#[derive(Debug)]
enum ResponseItem {
    Text(String),
    Reasoning(Value),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// A type unknown to this version, or one that only the provider's own tools produce.
    Other,
}

impl StreamDecoder for ResponsesDecoder {
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError> {
        if data.trim() == "[DONE]" {
            // Not part of this protocol, but some compatible servers end with it.
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|_| StreamError::NotJson(data.to_owned()))?;
        let index = event["output_index"].as_u64().unwrap_or_default();
        let delta = event["delta"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => {
                let item = self.parse_item(&event["item"]);
                if let ResponseItem::Call { name, .. } = &item {
                    on_delta(ReplyDelta::ToolUse(name));
                }
                self.items.insert(index, item);
            }
            "response.output_item.done" => {
                let item = self.parse_item(&event["item"]);
                self.complete_item(index, item);
            }
            "response.output_text.delta" => self.append_text(index, delta, on_delta),
            "response.refusal.delta" => {
                self.has_refusal = true;
                self.append_text(index, delta, on_delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                on_delta(ReplyDelta::Thinking(delta));
            }
            "response.function_call_arguments.delta" => {
                if let Some(ResponseItem::Call { arguments, .. }) = self.items.get_mut(&index) {
                    arguments.push_str(delta);
                }
            }
            "response.completed" => self.end_response(&event["response"], ResponseEnd::Completed),
            "response.incomplete" => {
                let reason = event["response"]["incomplete_details"]["reason"].as_str().unwrap_or_default();
                let reason = match reason {
                    "max_output_tokens" | "max_tokens" => StopReason::MaxTokens,
                    "content_filter" => StopReason::Refusal,
                    other => StopReason::Other(other.to_owned()),
                };
                self.end_response(&event["response"], ResponseEnd::Incomplete(reason));
            }
            "response.failed" => {
                let error = json!({ "error": event["response"]["error"] });
                return Err(StreamError::ProviderError(error.to_string().into_bytes()));
            }
            "error" => return Err(StreamError::ProviderError(data.as_bytes().to_vec())),
            _ if !event["error"].is_null() => {
                return Err(StreamError::ProviderError(data.as_bytes().to_vec()));
            }
            // `response.created`, `response.in_progress`, the ends of parts, and events of later versions are
            // ignored.
            _ => {}
        }
        Ok(())
    }

    fn push_full_reply(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamError> {
        if !body["output"].is_array() {
            return Ok(false);
        }
        let status = body["status"].as_str().unwrap_or_default();
        let event = json!({ "type": format!("response.{status}"), "response": body });
        self.push_event(&event.to_string(), on_delta)?;
        Ok(true)
    }

    /// The counts arrive with the end.
    fn is_complete(&self) -> bool {
        self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply, ModelError> {
        let end = self.end.ok_or(ModelError::CutStream)?;
        let part = |item| match item {
            ResponseItem::Text(text) => (!text.is_empty()).then_some(ReplyPart::Text(text)),
            // Without its encrypted content it could not be sent back.
            ResponseItem::Reasoning(data) if encrypted_content(&data).is_none() => None,
            ResponseItem::Reasoning(data) => {
                Some(ReplyPart::Thinking { provider: "openai-responses".to_owned(), data })
            }
            ResponseItem::Call { id, name, arguments } => {
                Some(ReplyPart::ToolUse { provider_id: id, name, args_json: arguments })
            }
            ResponseItem::Other => None,
        };
        let parts: Vec<ReplyPart> = self.items.into_values().filter_map(part).collect();
        let calls = parts.iter().any(|part| matches!(part, ReplyPart::ToolUse { .. }));
        let stop_reason = match end {
            ResponseEnd::Incomplete(reason) => reason,
            ResponseEnd::Completed if self.has_refusal => StopReason::Refusal,
            ResponseEnd::Completed if calls => StopReason::ToolUse,
            ResponseEnd::Completed => StopReason::EndTurn,
        };
        Ok(DecodedReply { parts, stop_reason, usage: self.usage })
    }
}

impl ResponsesDecoder {
    fn append_text(&mut self, index: u64, piece: &str, on_delta: OnDelta<'_>) {
        if let ResponseItem::Text(text) =
            self.items.entry(index).or_insert_with(|| ResponseItem::Text(String::new()))
        {
            text.push_str(piece);
        }
        on_delta(ReplyDelta::Text(piece));
    }

    /// Replaces an item's deltas with the complete item; some compatible servers omit streamed content from
    /// it.
    fn complete_item(&mut self, index: u64, item: ResponseItem) {
        let item = match (self.items.remove(&index), item) {
            (Some(ResponseItem::Text(streamed)), ResponseItem::Text(said)) if said.is_empty() => {
                ResponseItem::Text(streamed)
            }
            (
                Some(ResponseItem::Call { arguments: streamed, .. }),
                ResponseItem::Call { id, name, arguments },
            ) if arguments.is_empty() => ResponseItem::Call { id, name, arguments: streamed },
            (_, item) => item,
        };
        self.items.insert(index, item);
    }

    fn parse_item(&mut self, item: &Value) -> ResponseItem {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                let mut said = String::new();
                for piece in item["content"].as_array().into_iter().flatten() {
                    self.has_refusal |= piece["type"] == "refusal";
                    said.push_str(piece["text"].as_str().or(piece["refusal"].as_str()).unwrap_or_default());
                }
                ResponseItem::Text(said)
            }
            "reasoning" => ResponseItem::Reasoning(item.clone()),
            "function_call" => {
                ResponseItem::Call { id: text("call_id"), name: text("name"), arguments: text("arguments") }
            }
            _ => ResponseItem::Other,
        }
    }

    fn end_response(&mut self, response: &Value, end: ResponseEnd) {
        self.usage = parse_usage(&response["usage"]);
        if self.items.is_empty() {
            // Some compatible servers send only the final event.
            for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
                let item = self.parse_item(item);
                self.items.insert(index, item);
            }
        }
        self.end = Some(end);
    }
}

/// This protocol counts cached tokens as part of the input tokens; ours are separate.
fn parse_usage(usage: &Value) -> TokenUsage {
    let tokens = |value: &Value| value.as_u64().unwrap_or_default();
    let details = &usage["input_tokens_details"];
    let (read, write) = (tokens(&details["cached_tokens"]), tokens(&details["cache_write_tokens"]));
    TokenUsage {
        input_tokens: tokens(&usage["input_tokens"]).saturating_sub(read.saturating_add(write)),
        output_tokens: tokens(&usage["output_tokens"]),
        cache_read_tokens: read,
        cache_write_tokens: write,
        estimated: false,
    }
}
