//! A model request, and its rendering to the exact bytes of a body. Pure: the same request and blobs
//! give the same bytes on any machine, so that the log needs only their hash. Called by engines'
//! `render` and by replay.
//!
//! Rendering is also where a conversation that a provider would refuse is caught: a call without its
//! one result in the next message is [`RenderError`], never a request.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    ids::{BlobHash, DecisionHash},
    message::{CallId, Message, MessagePart, MessageRole, ModelRef, ToolSpec, ToolUse},
    run::ReasoningEffort,
};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap as _, SerializeSeq as _},
};
use serde_json::Value;

use super::{
    provider_protocol::{ModelProvider, ProviderProtocol},
    visible_text,
};

/// Everything a body is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// Which model, at which address.
    pub model: ModelRef,
    /// The system prompt; empty = none.
    pub system: String,
    /// The tools, in the order the model is told of them.
    pub tools: Vec<ToolSpec>,
    /// The conversation. Begins and ends with the user's side.
    pub messages: Vec<Message>,
    /// Largest answer.
    pub max_output_tokens: u32,
    /// Sampling temperature in thousandths (700 = 0.7). `None` leaves it out, as newer models demand.
    pub temperature_milli: Option<u32>,
    /// How hard the model thinks. `None` leaves it to the provider.
    pub effort: Option<ReasoningEffort>,
    /// In Chat Completions: name the limit `max_completion_tokens` wherever the model is.
    pub use_completion_tokens_field: bool,
    /// Whether the answer whose calls' results come last began with a thought; see [`crate::engine::Manner`].
    pub began_with_thought: Option<bool>,
}

/// A rendered request: what is sent, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedRequest {
    /// Which model, at which address.
    pub model: ModelRef,
    /// The body's bytes.
    pub body: Bytes,
}

/// Where rendering finds parts that are out of line.
pub trait BlobSource {
    /// The blob's bytes; `None` where they are not at hand.
    fn get(&self, blob: &BlobRef) -> Option<Bytes>;
}

impl BlobSource for HashMap<BlobHash, Bytes> {
    fn get(&self, blob: &BlobRef) -> Option<Bytes> {
        HashMap::get(self, &blob.hash).cloned()
    }
}

/// A request that cannot be sent. All but `MissingBlob` and `UnknownProvider` are faults of the engine
/// or of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A part's blob is not at hand.
    #[error("blob {0} of the conversation is missing; fetch it before rendering")]
    MissingBlob(BlobHash),
    /// A part's base64 does not decode.
    #[error("a part of the conversation holds damaged base64; run `docket verify` on the run")]
    DamagedBase64,
    /// Nobody speaks this protocol.
    #[error("unknown provider `{0}`; use anthropic, openai, openai-responses or scripted")]
    UnknownProvider(String),
    /// A call has no result in the next message.
    #[error("call {0} has no result in the next message")]
    DanglingCall(CallId),
    /// A result answers no call of the message before.
    #[error("the result of {0} answers no call of the message before it")]
    UnknownResult(CallId),
    /// A call, or its result, stands there twice.
    #[error("call {0} or its result stands twice in one message")]
    DuplicateCall(CallId),
    /// The conversation is empty, or begins or ends with the model's side.
    #[error("the conversation must begin and end with the user's side")]
    NotUserTurn,
    /// A call or reasoning on the user's side, or a result on the model's.
    #[error("message {0} holds a part that its side cannot say")]
    WrongRole(usize),
}

/// Renders the exact body.
///
/// # Errors
/// [`RenderError`] where a blob is missing or the conversation is one that providers refuse.
pub fn render(request: &ModelRequest, blobs: &impl BlobSource) -> Result<Vec<u8>, RenderError> {
    let provider = ModelProvider::for_model(&request.model)?;
    render_with_protocol(request, (provider.protocol(), provider.name()), blobs)
}

/// The same, spoken to somebody of this name in this way.
pub(super) fn render_with_protocol(
    request: &ModelRequest,
    (dialect, name): (&'static dyn ProviderProtocol, &'static str),
    blobs: &impl BlobSource,
) -> Result<Vec<u8>, RenderError> {
    let listener = TargetModel::new(&request.model, name);
    let mut turns = collect_turns(request.messages.iter().enumerate(), &listener, blobs)?;
    pair_calls_with_results(&mut turns, MessageRole::User)?;
    let BodyFrame { head, tail, has_messages, protocol: dialect } = dialect.body_frame(request);
    let mut body = head;
    let mut first = !has_messages;
    for (turn, marked) in mark_cached_turns(dialect, &turns) {
        if !std::mem::take(&mut first) {
            body.push(b',');
        }
        dialect.write_turn(turn, marked, &mut body);
    }
    body.extend(tail);
    Ok(body)
}

/// What stands around the conversation in a body, and how its turns are written.
#[derive(Debug, Clone)]
pub(super) struct BodyFrame {
    /// Up to and with the bracket that opens the messages, and a system message where it is one of them.
    pub(super) head: Vec<u8>,
    /// From the bracket that closes them.
    pub(super) tail: Vec<u8>,
    /// `head` holds a message already.
    pub(super) has_messages: bool,
    pub(super) protocol: &'static dyn ProviderProtocol,
}

/// The turns, each with whether it bears a cache mark: the last few of the user's side do, where the provider wants
/// marks.
pub(super) fn mark_cached_turns<'t, 'a>(
    dialect: &'static dyn ProviderProtocol,
    turns: &'t [ConversationTurn<'a>],
) -> impl Iterator<Item = (&'t ConversationTurn<'a>, bool)> {
    let users = turns.iter().filter(|turn| turn.role == MessageRole::User).count();
    let mut user = 0;
    turns.iter().map(move |turn| {
        user += usize::from(turn.role == MessageRole::User);
        (turn, turn.role == MessageRole::User && user + dialect.cache_marked_turns() > users)
    })
}

/// The JSON of an object of which more fields follow: without its closing brace.
pub(super) fn open_object(fields: &impl Serialize) -> Vec<u8> {
    let mut json = to_json_bytes(fields);
    json.pop();
    json
}

/// The JSON of the fields that close an object which is open: without an opening brace, behind a comma.
pub(super) fn close_object(fields: &impl Serialize) -> Vec<u8> {
    let mut json = to_json_bytes(fields);
    json[0] = b',';
    json
}

/// Hash of a body, as the log keeps it. Headers are no part of it.
pub fn request_hash(body: &[u8]) -> DecisionHash {
    DecisionHash::of(body)
}

/// One side's turn to speak: neighbouring messages of one role joined, blanks dropped, blobs resolved.
#[derive(Debug)]
pub(super) struct ConversationTurn<'a> {
    pub(super) role: MessageRole,
    /// Place of the message that began it.
    pub(super) first_message: usize,
    /// On the user's side results come first, in the order of the calls they answer.
    pub(super) parts: Vec<TurnPart<'a>>,
}

#[derive(Debug)]
pub(super) enum TurnPart<'a> {
    Text(Cow<'a, str>),
    Thinking(&'a Value),
    ToolUse(&'a ToolUse),
    ToolResult { call: &'a CallId, text: Cow<'a, str>, is_error: bool },
}

/// What stands for a result without a word: providers differ on whether a result may be empty.
const EMPTY_RESULT: &str = "(no output)";

/// Who reads a conversation: reasoning of nobody else is sent to it.
#[derive(Debug, Clone)]
pub(super) struct TargetModel {
    protocol: &'static str,
    /// As reasoning is signed where a run has several models.
    model: String,
}

impl TargetModel {
    pub(super) fn new(model: &ModelRef, protocol: &'static str) -> Self {
        Self { protocol, model: model.to_string() }
    }

    fn is_author(&self, provider: &str) -> bool {
        provider == self.protocol || provider == self.model
    }
}

/// The turns that messages make, each message with its place in the conversation. Not paired yet.
pub(super) fn collect_turns<'a>(
    messages: impl Iterator<Item = (usize, &'a Message)>,
    listener: &TargetModel,
    blobs: &impl BlobSource,
) -> Result<Vec<ConversationTurn<'a>>, RenderError> {
    let mut turns: Vec<ConversationTurn<'a>> = Vec::new();
    for (index, message) in messages {
        let mut parts = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            parts.extend(collect_part(part, message.role, index, listener, blobs)?);
        }
        // Reasoning alone is an answer that said nothing; and no provider takes it as the last block.
        while matches!(parts.last(), Some(TurnPart::Thinking(_))) {
            parts.pop();
        }
        match turns.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == message.role => last.parts.append(&mut parts),
            Some(_) | None => {
                turns.push(ConversationTurn { role: message.role, first_message: index, parts })
            }
        }
    }
    Ok(turns)
}

fn collect_part<'a>(
    part: &'a MessagePart,
    role: MessageRole,
    index: usize,
    listener: &TargetModel,
    blobs: &impl BlobSource,
) -> Result<Option<TurnPart<'a>>, RenderError> {
    Ok(match (part, role) {
        (MessagePart::Text { text }, MessageRole::User | MessageRole::Assistant) => {
            let text = resolve_text(text, blobs)?;
            (!text.trim().is_empty()).then_some(TurnPart::Text(text))
        }
        (MessagePart::Thinking { provider: of, data }, MessageRole::Assistant) => {
            listener.is_author(of).then_some(TurnPart::Thinking(data))
        }
        (MessagePart::ToolUse(call), MessageRole::Assistant) => Some(TurnPart::ToolUse(call)),
        (MessagePart::ToolResult { call, content, is_error }, MessageRole::User) => {
            let text = resolve_text(content, blobs)?;
            let text = if text.trim().is_empty() { Cow::Borrowed(EMPTY_RESULT) } else { text };
            Some(TurnPart::ToolResult { call, text, is_error: *is_error })
        }
        (MessagePart::Thinking { .. } | MessagePart::ToolUse(_), MessageRole::User)
        | (MessagePart::ToolResult { .. }, MessageRole::Assistant) => {
            return Err(RenderError::WrongRole(index));
        }
    })
}

fn resolve_text<'a>(content: &'a Content, blobs: &impl BlobSource) -> Result<Cow<'a, str>, RenderError> {
    match content {
        Content::Text(text) => Ok(visible_text::escape_hidden_chars(text)),
        Content::B64(_) => {
            let bytes = content.inline_bytes().ok_or(RenderError::DamagedBase64)?;
            Ok(Cow::Owned(visible_text::visible_text_from_bytes(&bytes).into_owned()))
        }
        Content::Blob(blob) => {
            let bytes = blobs.get(blob).ok_or(RenderError::MissingBlob(blob.hash))?;
            Ok(Cow::Owned(visible_text::visible_text_from_bytes(&bytes).into_owned()))
        }
    }
}

/// Checks that every call has its one result in the next turn, and sorts results as their calls. The turns
/// begin with the side of `first`: what stands before them leaves no call open.
pub(super) fn pair_calls_with_results(
    turns: &mut [ConversationTurn<'_>],
    first: MessageRole,
) -> Result<(), RenderError> {
    let ends = (turns.first().map(|turn| turn.role), turns.last().map(|turn| turn.role));
    if ends != (Some(first), Some(MessageRole::User)) {
        return Err(RenderError::NotUserTurn);
    }
    let mut open: HashMap<&CallId, usize> = HashMap::new();
    for turn in turns {
        let mut answered = vec![false; open.len()];
        for part in &turn.parts {
            if let TurnPart::ToolResult { call, .. } = part {
                let place = *open.get(call).ok_or_else(|| RenderError::UnknownResult((*call).clone()))?;
                if std::mem::replace(&mut answered[place], true) {
                    return Err(RenderError::DuplicateCall((*call).clone()));
                }
            }
        }
        if let Some((call, _)) =
            open.iter().filter(|(_, place)| !answered[**place]).min_by_key(|(_, place)| **place)
        {
            return Err(RenderError::DanglingCall((*call).clone()));
        }
        // Stable: texts keep their order behind the results.
        if turn.role == MessageRole::User {
            turn.parts.sort_by_key(|part| match part {
                TurnPart::ToolResult { call, .. } => open.get(call).copied().unwrap_or(usize::MAX),
                TurnPart::Text(_) | TurnPart::Thinking(_) | TurnPart::ToolUse(_) => usize::MAX,
            });
        }
        open.clear();
        for part in &turn.parts {
            if let TurnPart::ToolUse(call) = part {
                let place = open.len();
                if open.insert(&call.call, place).is_some() {
                    return Err(RenderError::DuplicateCall(call.call.clone()));
                }
            }
        }
    }
    Ok(())
}

/// Longest tool name all providers take, in characters.
const TOOL_NAME_CHARS_MAX: usize = 64;

/// A tool's name as providers take it back: a model may invent one they would refuse for ever.
pub(super) fn sanitize_tool_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() {
        Cow::Borrowed("unnamed")
    } else if name.len() <= TOOL_NAME_CHARS_MAX && name.chars().all(legal) {
        Cow::Borrowed(name)
    } else {
        let legal = |c| if legal(c) { c } else { '_' };
        Cow::Owned(name.chars().take(TOOL_NAME_CHARS_MAX).map(legal).collect())
    }
}

/// Characters of malformed arguments that the model is shown again: enough to see the fault.
const MALFORMED_CHARS_MAX: usize = 2000;

/// A call's arguments as an object: providers refuse, and some servers crash on, anything else.
pub(super) struct ToolArguments<'a>(pub(super) &'a ToolUse);

impl Serialize for ToolArguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (&self.0.malformed, &self.0.args) {
            (None, args @ Value::Object(_)) => SortedJson(args).serialize(serializer),
            (malformed, _) => {
                let text = malformed.as_deref().unwrap_or("");
                let cut = text.char_indices().nth(MALFORMED_CHARS_MAX).map_or(text.len(), |(at, _)| at);
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("malformed_arguments", &visible_text::escape_hidden_chars(&text[..cut]))?;
                map.end()
            }
        }
    }
}

/// JSON with the keys of every object in byte order, whatever order the build of the JSON library keeps.
pub(super) struct SortedJson<'a>(pub(super) &'a Value);

impl Serialize for SortedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => {
                let mut entries: Vec<_> = object.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &SortedJson(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&SortedJson(item))?;
                }
                seq.end()
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                plain.serialize(serializer)
            }
        }
    }
}

/// A body's bytes; the shapes here hold nothing that JSON cannot.
pub(super) fn to_json_bytes(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("string keys and finite numbers only")
}

/// A temperature as JSON. Dividing two small integers gives the shortest form on every machine.
pub(super) fn temperature_value(request: &ModelRequest) -> Option<f64> {
    request.temperature_milli.map(|milli| f64::from(milli) / 1000.0)
}
