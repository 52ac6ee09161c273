//! Anthropic Messages: a request's body, and the folding of its event stream into an answer. Pure;
//! the client moves the bytes. The scripted model reads the same body.

use std::{borrow::Cow, collections::BTreeMap};

use docket_schema::{
    message::{Role, StopReason, Usage},
    run::Effort,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{AnswerPart, Delta, OnDelta},
    client::ANTHROPIC_BASE_URL,
    dialect::{AnswerFold, Dialect},
    error::ModelError,
    fold::{Folded, StreamFault},
    request::{
        Args, Layout, ModelRequest, Sorted, Spoken, SpokenPart, close_object, open_object, temperature,
        to_bytes, tool_name,
    },
};

/// The version of the protocol, sent as a header.
pub(super) const VERSION: &str = "2023-06-01";

/// How it is spoken to.
#[derive(Debug)]
pub(super) struct Anthropic;

impl Dialect for Anthropic {
    fn base_url(&self) -> &'static str {
        ANTHROPIC_BASE_URL
    }

    fn endpoint(&self, base: &str) -> String {
        // Both forms are written in the wild.
        format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn key_variable(&self) -> &'static str {
        "ANTHROPIC_API_KEY"
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-api-key", key.to_owned())
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", VERSION)]
    }

    fn marked_turns(&self) -> usize {
        MARKED_USER_MESSAGES
    }

    fn layout(&self, request: &ModelRequest) -> Layout {
        layout(request)
    }

    fn speak(&self, turn: &Spoken<'_>, marked: bool, out: &mut Vec<u8>) {
        speak(turn, marked, out);
    }

    fn fold(&self) -> Box<dyn AnswerFold> {
        Box::new(Fold::default())
    }
}

/// What precedes the messages.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

/// Models of before 4.6 think as many tokens as they are given; those since as much as they find right.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Adaptive,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

/// Beginnings of names of models that know of budgets alone.
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
/// The smallest budget that is taken.
const BUDGET_TOKENS_MIN: u32 = 1024;

/// How thinking is asked for. A budget is a part of the answer's limit, and leaves half of it to the answer itself;
/// where that is less than any budget may be, none is asked for.
fn thinking(request: &ModelRequest) -> (Option<Thinking>, Option<OutputConfig>) {
    let Some(effort) = request.effort else { return (None, None) };
    if !BUDGET_MODELS.iter().any(|begin| request.model.name.starts_with(begin)) {
        return (Some(Thinking::Adaptive), Some(OutputConfig { effort: effort.as_str() }));
    }
    let wanted = match effort {
        Effort::Low => BUDGET_TOKENS_MIN,
        Effort::Medium => 8 * BUDGET_TOKENS_MIN,
        Effort::High => 24 * BUDGET_TOKENS_MIN,
    };
    // Within a turn of calls thinking stays as it was: a call that was made without a thought is refused with it, and
    // one that was made with a thought without it.
    let fits = match request.thought {
        Some(false) => false,
        Some(true) => request.max_output_tokens > BUDGET_TOKENS_MIN,
        None => request.max_output_tokens / 2 >= BUDGET_TOKENS_MIN,
    };
    let budget_tokens = wanted.min((request.max_output_tokens / 2).max(BUDGET_TOKENS_MIN));
    (fits.then_some(Thinking::Enabled { budget_tokens }), None)
}

/// What follows them.
#[derive(Serialize)]
struct Tail {
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Sorted<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Cache>,
}

#[derive(Serialize)]
struct BodyMessage<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

/// Reasoning goes back as the very object it came as; all else has its tag.
enum Content<'a> {
    Block(Block<'a>),
    AsItCame(&'a Value),
}

impl Serialize for Content<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Block(block) => block.serialize(serializer),
            Self::AsItCame(value) => Sorted(value).serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: Args<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
}

#[derive(Serialize, Clone, Copy)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Cache {
    Ephemeral,
}

/// Cache marks on user messages, counted from the end. Tools and system take the other two of the
/// four a request may have. The last but one is where the request before this one wrote: the provider
/// looks back only 20 blocks from a mark, and one large batch is longer than that.
pub(super) const MARKED_USER_MESSAGES: usize = 2;

fn layout(request: &ModelRequest) -> Layout {
    let last_tool = request.tools.len().saturating_sub(1);
    let tools = request.tools.iter().enumerate().map(|(index, tool)| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: Sorted(&tool.input_schema),
        cache_control: (index == last_tool).then_some(Cache::Ephemeral),
    });
    let system = (!request.system.trim().is_empty()).then_some(Block::Text {
        text: Cow::Borrowed(request.system.as_str()),
        cache_control: Some(Cache::Ephemeral),
    });
    let (thinking, output_config) = thinking(request);
    let mut head = open_object(&Head {
        model: &request.model.name,
        max_tokens: request.max_output_tokens,
        // Who thinks takes no temperature.
        temperature: temperature(request).filter(|_| thinking.is_none()),
        thinking,
        output_config,
        system: system.into_iter().collect(),
        tools: tools.collect(),
    });
    head.extend_from_slice(br#","messages":["#);
    let tail = [b"]".as_slice(), &close_object(&Tail { stream: true })].concat();
    Layout { head, tail, has_messages: false, dialect: &Anthropic }
}

fn speak(turn: &Spoken<'_>, marked: bool, out: &mut Vec<u8>) {
    out.extend(to_bytes(&message(turn, marked.then_some(Cache::Ephemeral))));
}

fn message<'a>(turn: &'a Spoken<'a>, cache: Option<Cache>) -> BodyMessage<'a> {
    let last = turn.parts.len().saturating_sub(1);
    let content = turn.parts.iter().enumerate().map(|(index, part)| {
        let cache_control = cache.filter(|_| index == last);
        Content::Block(match part {
            SpokenPart::Text(text) => Block::Text { text: Cow::Borrowed(text), cache_control },
            SpokenPart::Thinking(data) => return Content::AsItCame(data),
            SpokenPart::ToolUse(call) => {
                Block::ToolUse { id: &call.call.0, name: tool_name(&call.name), input: Args(call) }
            }
            SpokenPart::ToolResult { call, text, is_error } => Block::ToolResult {
                tool_use_id: &call.0,
                content: Cow::Borrowed(text),
                is_error: *is_error,
                cache_control,
            },
        })
    });
    let role = match turn.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    BodyMessage { role, content: content.collect() }
}

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Fold {
    blocks: BTreeMap<u64, AnswerBlock>,
    stop: Option<StopReason>,
    usage: Usage,
    ended: bool,
}

#[derive(Debug)]
enum AnswerBlock {
    Text(String),
    Thinking(Value),
    ToolUse {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// Of a kind this version does not know, or one that only the provider's own tools make.
    Other,
}

impl AnswerFold for Fold {
    fn event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamFault> {
        let event: Value = serde_json::from_str(data).map_err(|_| StreamFault::NotJson(data.to_owned()))?;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => self.start(&event, on_delta),
            "content_block_delta" => self.extend(&event, on_delta),
            "message_delta" => {
                self.count(&event["usage"]);
                if let Some(reason) = event["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop_reason(reason));
                }
            }
            "message_stop" => self.ended = true,
            "error" => return Err(StreamFault::Refused(data.as_bytes().to_vec())),
            // `ping`, `content_block_stop`, and events of later versions.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamFault> {
        if !body["content"].is_array() {
            return Ok(false);
        }
        for (index, block) in body["content"].as_array().into_iter().flatten().enumerate() {
            self.start(&json!({ "index": index, "content_block": block }), on_delta);
        }
        self.count(&body["usage"]);
        self.stop = body["stop_reason"].as_str().map(stop_reason);
        self.ended = true;
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
        let part = |block| match block {
            AnswerBlock::Text(text) => (!text.is_empty()).then_some(AnswerPart::Text(text)),
            // Without its signature (cut by the output limit) it could not be sent back.
            AnswerBlock::Thinking(data) if data["type"] == "thinking" && data["signature"] == "" => None,
            AnswerBlock::Thinking(data) => {
                Some(AnswerPart::Thinking { provider: "anthropic".to_owned(), data })
            }
            AnswerBlock::ToolUse { id, name, input, json } => {
                let args_json = if json.is_empty() { input.to_string() } else { json };
                Some(AnswerPart::ToolUse { provider_id: id, name, args_json })
            }
            AnswerBlock::Other => None,
        };
        let parts = self.blocks.into_values().filter_map(part).collect();
        Ok(Folded { parts, stop_reason, usage: self.usage })
    }
}

impl Fold {
    /// Counts are totals so far, so that later ones replace earlier ones.
    fn count(&mut self, usage: &Value) {
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

    fn start(&mut self, event: &Value, on_delta: OnDelta<'_>) {
        let block = &event["content_block"];
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let block = match block["type"].as_str().unwrap_or_default() {
            "text" => AnswerBlock::Text(text("text")),
            "thinking" | "redacted_thinking" => AnswerBlock::Thinking(block.clone()),
            "tool_use" => {
                on_delta(Delta::ToolUse(&text("name")));
                AnswerBlock::ToolUse {
                    id: text("id"),
                    name: text("name"),
                    input: block["input"].clone(),
                    json: String::new(),
                }
            }
            _ => AnswerBlock::Other,
        };
        self.blocks.insert(event["index"].as_u64().unwrap_or_default(), block);
    }

    fn extend(&mut self, event: &Value, on_delta: OnDelta<'_>) {
        let index = event["index"].as_u64().unwrap_or_default();
        let delta = &event["delta"];
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), delta["type"].as_str().unwrap_or_default()) {
            (Some(AnswerBlock::Text(text)), "text_delta") => {
                text.push_str(piece("text"));
                on_delta(Delta::Text(piece("text")));
            }
            (Some(AnswerBlock::ToolUse { json, .. }), "input_json_delta") => {
                json.push_str(piece("partial_json"));
            }
            (Some(AnswerBlock::Thinking(data)), "thinking_delta") => {
                append(data, "thinking", piece("thinking"));
                on_delta(Delta::Thinking(piece("thinking")));
            }
            (Some(AnswerBlock::Thinking(data)), "signature_delta") => {
                append(data, "signature", piece("signature"));
            }
            // Citations, and deltas of later versions.
            _ => {}
        }
    }
}

fn append(data: &mut Value, field: &str, piece: &str) {
    match &mut data[field] {
        Value::String(text) => text.push_str(piece),
        other => *other = json!(piece),
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "stop_sequence" => StopReason::StopSequence,
        "refusal" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}
