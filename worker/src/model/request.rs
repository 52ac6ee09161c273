//! Model requests, and their rendering to the exact bytes of a body. Pure: the same request and blobs give
//! the same bytes on any machine, so that the log needs only their hash. Called by the engines' `render` and
//! by replay.
//!
//! Rendering also detects conversations that a provider would reject: a call without exactly one result in
//! the next message is a [`RenderError`], never a request.

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

/// All inputs of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The model and its address.
    pub model: ModelRef,
    /// The system prompt; empty = none.
    pub system: String,
    /// The tools, in the order in which they are sent.
    pub tools: Vec<ToolSpec>,
    /// The conversation. It begins and ends with the user's side.
    pub messages: Vec<Message>,
    /// Largest reply, in tokens.
    pub max_output_tokens: u32,
    /// Sampling temperature in thousandths (700 = 0.7). `None` omits it, as newer models require.
    pub temperature_milli: Option<u32>,
    /// Reasoning effort. `None` leaves it to the provider.
    pub effort: Option<ReasoningEffort>,
    /// In Chat Completions: send the limit as `max_completion_tokens`, whatever the server.
    pub use_completion_tokens_field: bool,
    /// Whether the reply whose calls have the last results began with reasoning; see
    /// [`crate::engine::SamplingOptions`].
    pub began_with_thought: Option<bool>,
}

/// A rendered request and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedRequest {
    /// The model and its address.
    pub model: ModelRef,
    /// The body's bytes.
    pub body: Bytes,
}

/// Provides the blobs of parts that are not stored inline.
pub trait BlobSource {
    /// Returns the blob's bytes; `None` if they are not available.
    fn get(&self, blob: &BlobRef) -> Option<Bytes>;
}

impl BlobSource for HashMap<BlobHash, Bytes> {
    fn get(&self, blob: &BlobRef) -> Option<Bytes> {
        HashMap::get(self, &blob.hash).cloned()
    }
}

/// Why a request cannot be rendered. All but `MissingBlob` and `UnknownProvider` are bugs in the engine or
/// damage of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A part's blob is not available.
    #[error("blob {0} of the conversation is missing; fetch it before rendering")]
    MissingBlob(BlobHash),
    /// A part's base64 cannot be decoded.
    #[error("a part of the conversation contains damaged base64; run `docket verify` on the run")]
    DamagedBase64,
    /// The protocol is not supported.
    #[error("unknown provider `{0}`; use anthropic, openai, openai-responses or scripted")]
    UnknownProvider(String),
    /// A call has no result in the next message.
    #[error("call {0} has no result in the next message")]
    DanglingCall(CallId),
    /// A result belongs to no call of the previous message.
    #[error("the result of {0} belongs to no call of the previous message")]
    UnknownResult(CallId),
    /// A call or its result appears twice.
    #[error("call {0} or its result appears twice in one message")]
    DuplicateCall(CallId),
    /// The conversation is empty, or begins or ends with the model's side.
    #[error("the conversation must begin and end with the user's side")]
    NotUserTurn,
    /// A call or reasoning on the user's side, or a result on the model's.
    #[error("message {0} contains a part that its role cannot send")]
    WrongRole(usize),
}

/// Renders the exact body.
///
/// # Errors
/// [`RenderError`] if a blob is missing or providers would reject the conversation.
pub fn render(request: &ModelRequest, blobs: &impl BlobSource) -> Result<Vec<u8>, RenderError> {
    let provider = ModelProvider::for_model(&request.model)?;
    render_with_protocol(request, (provider.protocol(), provider.name()), blobs)
}

/// Like [`render`], for a given provider name and protocol.
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

/// The parts of a body around the conversation, and how its turns are written.
#[derive(Debug, Clone)]
pub(super) struct BodyFrame {
    /// Up to and including the bracket that opens the messages, and the system message if it is one of them.
    pub(super) head: Vec<u8>,
    /// Starts with the bracket that closes the messages.
    pub(super) tail: Vec<u8>,
    /// Whether `head` already contains a message.
    pub(super) has_messages: bool,
    pub(super) protocol: &'static dyn ProviderProtocol,
}

/// Returns the turns, each with whether it has a cache mark: the last few user turns do, if the provider uses
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

/// The JSON of an object without its closing brace, to be followed by more fields.
pub(super) fn open_object(fields: &impl Serialize) -> Vec<u8> {
    let mut json = to_json_bytes(fields);
    json.pop();
    json
}

/// The JSON of the last fields of an open object: starts with a comma instead of an opening brace.
pub(super) fn close_object(fields: &impl Serialize) -> Vec<u8> {
    let mut json = to_json_bytes(fields);
    json[0] = b',';
    json
}

/// Hash of a body, as the log stores it. Headers are not included.
pub fn request_hash(body: &[u8]) -> DecisionHash {
    DecisionHash::hash_bytes(body)
}

/// One side's turn: adjacent messages of one role merged, blank parts removed, blobs resolved.
#[derive(Debug)]
pub(super) struct ConversationTurn<'a> {
    pub(super) role: MessageRole,
    /// Index of its first message.
    pub(super) first_message: usize,
    /// On the user's side results come first, in the order of their calls.
    pub(super) parts: Vec<TurnPart<'a>>,
}

#[derive(Debug)]
pub(super) enum TurnPart<'a> {
    Text(Cow<'a, str>),
    Thinking(&'a Value),
    ToolUse(&'a ToolUse),
    ToolResult { call: &'a CallId, text: Cow<'a, str>, is_error: bool },
}

/// Placeholder for an empty result: providers differ on whether a result may be empty.
const EMPTY_RESULT: &str = "(no output)";

/// The receiver of a conversation. Reasoning of other models is not sent to it.
#[derive(Debug, Clone)]
pub(super) struct TargetModel {
    protocol: &'static str,
    /// The model name that marks reasoning if a run has several models.
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

/// Merges messages, each with its index in the conversation, into turns. Calls and results are not paired
/// yet.
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
        // Reasoning alone is an empty reply, and no provider accepts it as the last block.
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

/// Checks that every call has exactly one result in the next turn, and sorts results in the order of their
/// calls. The turns begin with the side of `first`: earlier turns leave no call open.
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
        // A stable sort: texts keep their order after the results.
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

/// Longest tool name that all providers accept, in characters.
const TOOL_NAME_CHARS_MAX: usize = 64;

/// Makes a tool name acceptable to providers: a name invented by a model could otherwise make every later
/// request fail.
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

/// Characters of malformed arguments that are shown to the model: enough to see the mistake.
const MALFORMED_CHARS_MAX: usize = 2000;

/// A call's arguments as an object: providers reject anything else, and some servers crash on it.
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

/// JSON with the keys of every object in byte order, independent of the build of the JSON library.
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

/// Serializes a body; its types contain nothing that JSON cannot represent.
pub(super) fn to_json_bytes(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("string keys and finite numbers only")
}

/// Returns the temperature as JSON. Dividing two small integers gives the shortest form on every machine.
pub(super) fn temperature_value(request: &ModelRequest) -> Option<f64> {
    request.temperature_milli.map(|milli| f64::from(milli) / 1000.0)
}
