//! Anthropic Messages: renders request bodies and decodes event streams into replies. Pure; the client
//! performs the I/O. The scripted model reads the same body format.

use std::{borrow::Cow, collections::BTreeMap};

use docket_schema::{
    message::{MessageRole, StopReason, TokenUsage},
    run::ReasoningEffort,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    client::ANTHROPIC_BASE_URL,
    error::ModelError,
    provider_protocol::{ProviderProtocol, StreamDecoder},
    reply::{OnDelta, ReplyDelta, ReplyPart},
    request::{
        BodyFrame, ConversationTurn, ModelRequest, SortedJson, ToolArguments, TurnPart, close_object,
        open_object, sanitize_tool_name, temperature_value, to_json_bytes,
    },
    stream_decoder::{DecodedReply, StreamError},
};

/// The protocol version, sent as a header.
pub(super) const API_VERSION: &str = "2023-06-01";

/// Implementation of the Anthropic Messages protocol.
#[derive(Debug)]
pub(super) struct AnthropicProtocol;

impl ProviderProtocol for AnthropicProtocol {
    fn base_url(&self) -> &'static str {
        ANTHROPIC_BASE_URL
    }

    fn endpoint_url(&self, base: &str) -> String {
        // Users configure the address with and without `/v1`.
        format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn key_variable(&self) -> &'static str {
        "ANTHROPIC_API_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-api-key", key.to_owned())
    }

    fn extra_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", API_VERSION)]
    }

    fn cache_marked_turns(&self) -> usize {
        MARKED_USER_MESSAGES
    }

    fn body_frame(&self, request: &ModelRequest) -> BodyFrame {
        body_frame(request)
    }

    fn write_turn(&self, turn: &ConversationTurn<'_>, marked: bool, out: &mut Vec<u8>) {
        write_turn(turn, marked, out);
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(AnthropicDecoder::default())
    }
}

/// The fields before the messages.
#[derive(Serialize)]
struct AnthropicHead<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<ContentBlock<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
}

/// Models before 4.6 take a thinking budget in tokens; later ones decide adaptively.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingOptions {
    Enabled { budget_tokens: u32 },
    Adaptive,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

/// Name prefixes of models that support only thinking budgets.
const BUDGET_MODELS: [&str; 9] = [
    "claude-3",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4-5",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
];
/// The smallest budget that the API accepts.
const BUDGET_TOKENS_MIN: u32 = 1024;

/// Returns the thinking options. A budget is part of the reply's token limit and leaves half of it to the
/// reply itself; if that is below the minimum budget, thinking is not requested.
fn thinking_options(request: &ModelRequest) -> (Option<ThinkingOptions>, Option<OutputConfig>) {
    let Some(effort) = request.effort else { return (None, None) };
    if !BUDGET_MODELS.iter().any(|begin| request.model.name.starts_with(begin)) {
        return (Some(ThinkingOptions::Adaptive), Some(OutputConfig { effort: effort.as_str() }));
    }
    let wanted = match effort {
        ReasoningEffort::Low => BUDGET_TOKENS_MIN,
        ReasoningEffort::Medium => 8 * BUDGET_TOKENS_MIN,
        ReasoningEffort::High => 24 * BUDGET_TOKENS_MIN,
    };
    // Within a series of calls the thinking mode must not change: the API rejects a call made without
    // thinking if thinking is on, and one made with thinking if it is off.
    let fits = match request.began_with_thought {
        Some(false) => false,
        Some(true) => request.max_output_tokens > BUDGET_TOKENS_MIN,
        None => request.max_output_tokens / 2 >= BUDGET_TOKENS_MIN,
    };
    let budget_tokens = wanted.min((request.max_output_tokens / 2).max(BUDGET_TOKENS_MIN));
    (fits.then_some(ThinkingOptions::Enabled { budget_tokens }), None)
}

/// The fields after the messages.
#[derive(Serialize)]
struct AnthropicTail {
    stream: bool,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: SortedJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Vec<MessageContent<'a>>,
}

/// Reasoning is sent back as the exact object received; every other block has a type tag.
enum MessageContent<'a> {
    Block(ContentBlock<'a>),
    Verbatim(&'a Value),
}

impl Serialize for MessageContent<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Block(block) => block.serialize(serializer),
            Self::Verbatim(value) => SortedJson(value).serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: ToolArguments<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Serialize, Clone, Copy)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

/// Number of user messages with a cache mark, counted from the end. Tools and system prompt use the other two
/// of the four marks that a request may have. The second to last mark is where the previous request wrote its
/// cache entry: the provider looks back only 20 blocks from a mark, and one large batch is longer than that.
pub(super) const MARKED_USER_MESSAGES: usize = 2;

fn body_frame(request: &ModelRequest) -> BodyFrame {
    let last_tool = request.tools.len().saturating_sub(1);
    let tools = request.tools.iter().enumerate().map(|(index, tool)| AnthropicTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: SortedJson(&tool.input_schema),
        cache_control: (index == last_tool).then_some(CacheControl::Ephemeral),
    });
    let system = (!request.system.trim().is_empty()).then_some(ContentBlock::Text {
        text: Cow::Borrowed(request.system.as_str()),
        cache_control: Some(CacheControl::Ephemeral),
    });
    let (thinking, output_config) = thinking_options(request);
    let mut head = open_object(&AnthropicHead {
        model: &request.model.name,
        max_tokens: request.max_output_tokens,
        // With thinking, the API does not accept a temperature.
        temperature: temperature_value(request).filter(|_| thinking.is_none()),
        thinking,
        output_config,
        system: system.into_iter().collect(),
        tools: tools.collect(),
    });
    head.extend_from_slice(br#","messages":["#);
    let tail = [b"]".as_slice(), &close_object(&AnthropicTail { stream: true })].concat();
    BodyFrame { head, tail, has_messages: false, protocol: &AnthropicProtocol }
}

fn write_turn(turn: &ConversationTurn<'_>, marked: bool, out: &mut Vec<u8>) {
    out.extend(to_json_bytes(&build_message(turn, marked.then_some(CacheControl::Ephemeral))));
}

fn build_message<'a>(turn: &'a ConversationTurn<'a>, cache: Option<CacheControl>) -> AnthropicMessage<'a> {
    let last = turn.parts.len().saturating_sub(1);
    let content = turn.parts.iter().enumerate().map(|(index, part)| {
        let cache_control = cache.filter(|_| index == last);
        MessageContent::Block(match part {
            TurnPart::Text(text) => ContentBlock::Text { text: Cow::Borrowed(text), cache_control },
            TurnPart::Thinking(data) => return MessageContent::Verbatim(data),
            TurnPart::ToolUse(call) => ContentBlock::ToolUse {
                id: &call.call.0,
                name: sanitize_tool_name(&call.name),
                input: ToolArguments(call),
            },
            TurnPart::ToolResult { call, text, is_error } => ContentBlock::ToolResult {
                tool_use_id: &call.0,
                content: Cow::Borrowed(text),
                is_error: *is_error,
                cache_control,
            },
        })
    });
    let role = match turn.role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    AnthropicMessage { role, content: content.collect() }
}

/// Decoder state: the reply so far.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    blocks: BTreeMap<u64, ReplyBlock>,
    stop_reason: Option<StopReason>,
    usage: TokenUsage,
    is_finished: bool,
}

#[derive(Debug)]
enum ReplyBlock {
    Text(String),
    Thinking(Value),
    ToolUse {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// A type unknown to this version, or one that only the provider's own tools produce.
    Other,
}

impl StreamDecoder for AnthropicDecoder {
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError> {
        let event: Value = serde_json::from_str(data).map_err(|_| StreamError::NotJson(data.to_owned()))?;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.update_usage(&event["message"]["usage"]),
            "content_block_start" => self.start_block(&event, on_delta),
            "content_block_delta" => self.extend_block(&event, on_delta),
            "message_delta" => {
                self.update_usage(&event["usage"]);
                if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                    self.stop_reason = Some(parse_stop_reason(reason));
                }
            }
            "message_stop" => self.is_finished = true,
            "error" => return Err(StreamError::ProviderError(data.as_bytes().to_vec())),
            // `ping`, `content_block_stop`, and events of later versions are ignored.
            _ => {}
        }
        Ok(())
    }

    fn push_full_reply(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamError> {
        if !body["content"].is_array() {
            return Ok(false);
        }
        for (index, block) in body["content"].as_array().into_iter().flatten().enumerate() {
            self.start_block(&json!({ "index": index, "content_block": block }), on_delta);
        }
        self.update_usage(&body["usage"]);
        self.stop_reason = body["stop_reason"].as_str().map(parse_stop_reason);
        self.is_finished = true;
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
        let part = |block| match block {
            ReplyBlock::Text(text) => (!text.is_empty()).then_some(ReplyPart::Text(text)),
            // Without its signature (cut off by the output limit) it could not be sent back.
            ReplyBlock::Thinking(data) if data["type"] == "thinking" && data["signature"] == "" => None,
            ReplyBlock::Thinking(data) => {
                Some(ReplyPart::Thinking { provider: "anthropic".to_owned(), data })
            }
            ReplyBlock::ToolUse { id, name, input, json } => {
                let args_json = if json.is_empty() { input.to_string() } else { json };
                Some(ReplyPart::ToolUse { provider_id: id, name, args_json })
            }
            ReplyBlock::Other => None,
        };
        let parts = self.blocks.into_values().filter_map(part).collect();
        Ok(DecodedReply { parts, stop_reason, usage: self.usage })
    }
}

impl AnthropicDecoder {
    /// Updates the usage. Counts are running totals, so later ones replace earlier ones.
    fn update_usage(&mut self, usage: &Value) {
        let set = |field: &mut u64, name: &str| {
            if let Some(tokens) = usage[name].as_u64() {
                *field = tokens;
            }
        };
        set(&mut self.usage.input_tokens, "input_tokens");
        set(&mut self.usage.output_tokens, "output_tokens");
        set(&mut self.usage.cache_read_tokens, "cache_read_input_tokens");
        set(&mut self.usage.cache_write_tokens, "cache_creation_input_tokens");
    }

    fn start_block(&mut self, event: &Value, on_delta: OnDelta<'_>) {
        let block = &event["content_block"];
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let block = match block["type"].as_str().unwrap_or_default() {
            "text" => ReplyBlock::Text(text("text")),
            "thinking" | "redacted_thinking" => ReplyBlock::Thinking(block.clone()),
            "tool_use" => {
                on_delta(ReplyDelta::ToolUse(&text("name")));
                ReplyBlock::ToolUse {
                    id: text("id"),
                    name: text("name"),
                    input: block["input"].clone(),
                    json: String::new(),
                }
            }
            _ => ReplyBlock::Other,
        };
        self.blocks.insert(event["index"].as_u64().unwrap_or_default(), block);
    }

    fn extend_block(&mut self, event: &Value, on_delta: OnDelta<'_>) {
        let index = event["index"].as_u64().unwrap_or_default();
        let delta = &event["delta"];
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), delta["type"].as_str().unwrap_or_default()) {
            (Some(ReplyBlock::Text(text)), "text_delta") => {
                text.push_str(piece("text"));
                on_delta(ReplyDelta::Text(piece("text")));
            }
            (Some(ReplyBlock::ToolUse { json, .. }), "input_json_delta") => {
                json.push_str(piece("partial_json"));
            }
            (Some(ReplyBlock::Thinking(data)), "thinking_delta") => {
                append_to_field(data, "thinking", piece("thinking"));
                on_delta(ReplyDelta::Thinking(piece("thinking")));
            }
            (Some(ReplyBlock::Thinking(data)), "signature_delta") => {
                append_to_field(data, "signature", piece("signature"));
            }
            // Citations, and deltas of later versions, are ignored.
            _ => {}
        }
    }
}

fn append_to_field(data: &mut Value, field: &str, piece: &str) {
    match &mut data[field] {
        Value::String(text) => text.push_str(piece),
        other => *other = json!(piece),
    }
}

fn parse_stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::StopSequence,
        "refusal" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}
