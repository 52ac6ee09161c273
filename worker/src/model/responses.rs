//! OpenAI Responses, spoken without state on the provider's side: a request's body, and the folding of its
//! stream into an answer. Pure; the client moves the bytes.
//!
//! Nothing is stored there, so every request carries the whole conversation, and reasoning goes back as the
//! cipher it came as, without its id: an id makes the provider look for an item that it never kept.

use std::{borrow::Cow, collections::BTreeMap};

use docket_schema::message::{Role, StopReason, Usage};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{AnswerPart, Delta, OnDelta},
    client::OPENAI_BASE_URL,
    dialect::{AnswerFold, Dialect},
    error::ModelError,
    fold::{Folded, StreamFault},
    openai::told_failure,
    request::{
        Args, Layout, ModelRequest, Sorted, Spoken, SpokenPart, close_object, open_object, temperature,
        to_bytes, tool_name,
    },
};

/// How it is spoken to.
#[derive(Debug)]
pub(super) struct Responses;

impl Dialect for Responses {
    fn base_url(&self) -> &'static str {
        OPENAI_BASE_URL
    }

    fn endpoint(&self, base: &str) -> String {
        format!("{base}/responses")
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

/// What precedes the conversation.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
}

/// What follows it.
#[derive(Serialize)]
struct Tail {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Sorted<'a>,
    /// Said, for the protocol's own default is strict, which takes no argument that may be left out.
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: Vec<Piece<'a>> },
    Reasoning { summary: Sorted<'a>, encrypted_content: &'a str },
    FunctionCall { call_id: &'a str, name: Cow<'a, str>, arguments: String },
    FunctionCallOutput { call_id: &'a str, output: Cow<'a, str> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
}

/// Reasoning that nobody there keeps has to come along as a cipher.
const CIPHER: [&str; 1] = ["reasoning.encrypted_content"];

/// Beginnings of names of models that do not reason: they refuse to be asked for [`CIPHER`].
const PLAIN_MODELS: [&str; 5] = ["gpt-4", "gpt-3.5", "chatgpt-", "ft:gpt-4", "ft:gpt-3.5"];

fn reasons(model: &str) -> bool {
    !PLAIN_MODELS.iter().any(|begin| model.starts_with(begin)) && !model.contains("-chat")
}

fn layout(request: &ModelRequest) -> Layout {
    let tools = request.tools.iter().map(|tool| Tool {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: Sorted(&tool.input_schema),
        strict: false,
    });
    let mut head = open_object(&Head {
        model: &request.model.name,
        max_output_tokens: request.max_output_tokens,
        temperature: temperature(request),
        reasoning: request.effort.map(|effort| Reasoning { effort: effort.as_str() }),
        instructions: (!request.system.trim().is_empty()).then_some(request.system.as_str()),
        tools: tools.collect(),
    });
    head.extend_from_slice(br#","input":["#);
    let include: &[&str] = if reasons(&request.model.name) { &CIPHER } else { &[] };
    let tail = [b"]".as_slice(), &close_object(&Tail { include, store: false, stream: true })].concat();
    Layout { head, tail, has_messages: false, dialect: &Responses }
}

fn speak(turn: &Spoken<'_>, out: &mut Vec<u8>) {
    let items = match turn.role {
        Role::User => user(turn),
        Role::Assistant => assistant(turn),
    };
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        out.extend(to_bytes(item));
    }
}

/// Results are items of their own and stand before any text.
fn user<'a>(turn: &'a Spoken<'a>) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let mut content = Vec::new();
    for part in &turn.parts {
        match part {
            SpokenPart::ToolResult { call, text, is_error } => {
                items.push(Item::FunctionCallOutput {
                    call_id: &call.0,
                    output: told_failure(text, *is_error),
                });
            }
            SpokenPart::Text(text) => content.push(Piece::InputText { text }),
            SpokenPart::Thinking(_) | SpokenPart::ToolUse(_) => {}
        }
    }
    if !content.is_empty() {
        items.push(Item::Message { role: "user", content });
    }
    items
}

fn assistant<'a>(turn: &'a Spoken<'a>) -> Vec<Item<'a>> {
    const NOTHING: &Value = &Value::Array(Vec::new());
    let item = |part: &'a SpokenPart<'a>| match part {
        SpokenPart::Text(text) => {
            Some(Item::Message { role: "assistant", content: vec![Piece::OutputText { text }] })
        }
        SpokenPart::Thinking(data) => cipher(data).map(|encrypted_content| Item::Reasoning {
            summary: Sorted(data.get("summary").filter(|summary| summary.is_array()).unwrap_or(NOTHING)),
            encrypted_content,
        }),
        SpokenPart::ToolUse(call) => Some(Item::FunctionCall {
            call_id: &call.call.0,
            name: tool_name(&call.name),
            arguments: serde_json::to_string(&Args(call)).expect("an object with string keys"),
        }),
        SpokenPart::ToolResult { .. } => None,
    };
    turn.parts.iter().filter_map(item).collect()
}

fn cipher(reasoning: &Value) -> Option<&str> {
    reasoning["encrypted_content"].as_str().filter(|cipher| !cipher.is_empty())
}

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Fold {
    items: BTreeMap<u64, AnswerItem>,
    /// A piece of the answer is a refusal.
    refused: bool,
    end: Option<End>,
    usage: Usage,
}

#[derive(Debug)]
enum End {
    Completed,
    Incomplete(StopReason),
}

#[derive(Debug)]
enum AnswerItem {
    Text(String),
    Reasoning(Value),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// Of a kind this version does not know, or one that only the provider's own tools make.
    Other,
}

impl AnswerFold for Fold {
    fn event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamFault> {
        if data.trim() == "[DONE]" {
            // Not of this protocol; some imitators end with it all the same.
            return Ok(());
        }
        let event: Value = serde_json::from_str(data).map_err(|_| StreamFault::NotJson(data.to_owned()))?;
        let index = event["output_index"].as_u64().unwrap_or_default();
        let delta = event["delta"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => {
                let item = self.item(&event["item"]);
                if let AnswerItem::Call { name, .. } = &item {
                    on_delta(Delta::ToolUse(name));
                }
                self.items.insert(index, item);
            }
            "response.output_item.done" => {
                let item = self.item(&event["item"]);
                self.done(index, item);
            }
            "response.output_text.delta" => self.say(index, delta, on_delta),
            "response.refusal.delta" => {
                self.refused = true;
                self.say(index, delta, on_delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                on_delta(Delta::Thinking(delta));
            }
            "response.function_call_arguments.delta" => {
                if let Some(AnswerItem::Call { arguments, .. }) = self.items.get_mut(&index) {
                    arguments.push_str(delta);
                }
            }
            "response.completed" => self.ends(&event["response"], End::Completed),
            "response.incomplete" => {
                let reason = event["response"]["incomplete_details"]["reason"].as_str().unwrap_or_default();
                let reason = match reason {
                    "max_output_tokens" | "max_tokens" => StopReason::MaxTokens,
                    "content_filter" => StopReason::Refusal,
                    other => StopReason::Other(other.to_owned()),
                };
                self.ends(&event["response"], End::Incomplete(reason));
            }
            "response.failed" => {
                let error = json!({ "error": event["response"]["error"] });
                return Err(StreamFault::Refused(error.to_string().into_bytes()));
            }
            "error" => return Err(StreamFault::Refused(data.as_bytes().to_vec())),
            _ if !event["error"].is_null() => return Err(StreamFault::Refused(data.as_bytes().to_vec())),
            // `response.created`, `response.in_progress`, the ends of parts, and events of later versions.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamFault> {
        if !body["output"].is_array() {
            return Ok(false);
        }
        let status = body["status"].as_str().unwrap_or_default();
        let event = json!({ "type": format!("response.{status}"), "response": body });
        self.event(&event.to_string(), on_delta)?;
        Ok(true)
    }

    /// Counts come with the end.
    fn is_whole(&self) -> bool {
        self.ended()
    }

    fn ended(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self: Box<Self>) -> Result<Folded, ModelError> {
        let end = self.end.ok_or(ModelError::CutStream)?;
        let part = |item| match item {
            AnswerItem::Text(text) => (!text.is_empty()).then_some(AnswerPart::Text(text)),
            // Without its cipher it could not be sent back.
            AnswerItem::Reasoning(data) if cipher(&data).is_none() => None,
            AnswerItem::Reasoning(data) => {
                Some(AnswerPart::Thinking { provider: "openai-responses".to_owned(), data })
            }
            AnswerItem::Call { id, name, arguments } => {
                Some(AnswerPart::ToolUse { provider_id: id, name, args_json: arguments })
            }
            AnswerItem::Other => None,
        };
        let parts: Vec<AnswerPart> = self.items.into_values().filter_map(part).collect();
        let calls = parts.iter().any(|part| matches!(part, AnswerPart::ToolUse { .. }));
        let stop_reason = match end {
            End::Incomplete(reason) => reason,
            End::Completed if self.refused => StopReason::Refusal,
            End::Completed if calls => StopReason::ToolUse,
            End::Completed => StopReason::EndTurn,
        };
        Ok(Folded { parts, stop_reason, usage: self.usage })
    }
}

impl Fold {
    fn say(&mut self, index: u64, piece: &str, on_delta: OnDelta<'_>) {
        if let AnswerItem::Text(text) =
            self.items.entry(index).or_insert_with(|| AnswerItem::Text(String::new()))
        {
            text.push_str(piece);
        }
        on_delta(Delta::Text(piece));
    }

    /// The whole item takes the place of its pieces; some imitators leave out of it what they streamed.
    fn done(&mut self, index: u64, item: AnswerItem) {
        let item = match (self.items.remove(&index), item) {
            (Some(AnswerItem::Text(streamed)), AnswerItem::Text(said)) if said.is_empty() => {
                AnswerItem::Text(streamed)
            }
            (
                Some(AnswerItem::Call { arguments: streamed, .. }),
                AnswerItem::Call { id, name, arguments },
            ) if arguments.is_empty() => AnswerItem::Call { id, name, arguments: streamed },
            (_, item) => item,
        };
        self.items.insert(index, item);
    }

    fn item(&mut self, item: &Value) -> AnswerItem {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                let mut said = String::new();
                for piece in item["content"].as_array().into_iter().flatten() {
                    self.refused |= piece["type"] == "refusal";
                    said.push_str(piece["text"].as_str().or(piece["refusal"].as_str()).unwrap_or_default());
                }
                AnswerItem::Text(said)
            }
            "reasoning" => AnswerItem::Reasoning(item.clone()),
            "function_call" => {
                AnswerItem::Call { id: text("call_id"), name: text("name"), arguments: text("arguments") }
            }
            _ => AnswerItem::Other,
        }
    }

    fn ends(&mut self, response: &Value, end: End) {
        self.usage = usage(&response["usage"]);
        if self.items.is_empty() {
            // Some imitators stream nothing but the end.
            for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
                let item = self.item(item);
                self.items.insert(index, item);
            }
        }
        self.end = Some(end);
    }
}

/// Here the cached tokens are part of the input's; our counts are apart.
fn usage(usage: &Value) -> Usage {
    let tokens = |value: &Value| value.as_u64().unwrap_or_default();
    let details = &usage["input_tokens_details"];
    let (read, write) = (tokens(&details["cached_tokens"]), tokens(&details["cache_write_tokens"]));
    Usage {
        input_tokens: tokens(&usage["input_tokens"]).saturating_sub(read.saturating_add(write)),
        output_tokens: tokens(&usage["output_tokens"]),
        cache_read_tokens: read,
        cache_write_tokens: write,
        estimated: false,
    }
}
