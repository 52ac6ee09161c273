//! A model's reply, independent of any provider's format, and its streamed deltas. Produced by the stream
//! decoders and the scripted model; recorded by the run loop.

use docket_schema::{
    content::Content,
    ids::Turn,
    message::{CallId, MessagePart, StopReason, TokenUsage, ToolUse},
};
use serde_json::Value;

/// A complete reply. It may contain neither text nor calls: the engine then asks again.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The parts, in order.
    pub parts: Vec<ReplyPart>,
    /// Why the reply ended. Without a reason the call failed with [`super::ModelError::CutStream`].
    pub stop_reason: StopReason,
    /// Tokens as counted by the provider; zeros if it did not count them.
    pub usage: TokenUsage,
    /// The provider's id of the request, for its support.
    pub provider_request_id: Option<String>,
    /// From sending the request to the first byte of the reply's body.
    pub first_byte_ms: u64,
    /// From sending the request to the end of the reply.
    pub total_ms: u64,
}

impl ModelReply {
    /// The size of text, reasoning and calls, in bytes.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let of = |part: &ReplyPart| match part {
            ReplyPart::Text(text) => text.len(),
            ReplyPart::Thinking { data, .. } => data.to_string().len(),
            ReplyPart::ToolUse { args_json, .. } => args_json.len(),
        };
        self.parts.iter().map(of).sum::<usize>() as u64
    }
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyPart {
    /// Text; never empty.
    Text(String),
    /// Reasoning in the provider's own format, to be sent back unchanged.
    Thinking {
        /// The format of `data`: `anthropic`, `openai`, `openai-responses`.
        provider: String,
        /// The provider's object.
        data: Value,
    },
    /// A tool call.
    ToolUse {
        /// The provider's id of the call; some servers repeat or omit it.
        provider_id: String,
        /// The tool as the model named it; it may not exist.
        name: String,
        /// The arguments as the model wrote them; they may not be valid JSON.
        args_json: String,
    },
}

/// A delta of a reply while it streams, for people who watch. Never recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyDelta<'a> {
    /// More text.
    Text(&'a str),
    /// More reasoning.
    Thinking(&'a str),
    /// The start of a call of this tool.
    ToolUse(&'a str),
    /// Bytes arrived, whatever their content: the server is alive.
    KeepAlive,
}

/// Callback that receives each [`ReplyDelta`].
pub type OnDelta<'a> = &'a mut (dyn FnMut(ReplyDelta<'_>) + Send);

impl ModelReply {
    /// Whether there is neither a tool call nor text other than white space.
    pub fn is_empty(&self) -> bool {
        !self.parts.iter().any(|part| match part {
            ReplyPart::Text(text) => !text.trim().is_empty(),
            ReplyPart::ToolUse { .. } => true,
            ReplyPart::Thinking { .. } => false,
        })
    }

    /// Converts the reply to parts of the conversation. Its calls get docket's ids (`t3-0`, `t3-1`, …).
    pub fn into_message_parts(self, turn: Turn) -> Vec<MessagePart> {
        let mut calls = 0;
        let part = |part| match part {
            ReplyPart::Text(text) => MessagePart::Text { text: Content::Text(text) },
            ReplyPart::Thinking { provider, data } => MessagePart::Thinking { provider, data },
            ReplyPart::ToolUse { provider_id: _, name, args_json } => {
                let call = CallId::for_tool(turn, calls);
                calls += 1;
                let (args, malformed) = parse_tool_args(args_json);
                MessagePart::ToolUse(ToolUse { call, name, args, malformed })
            }
        };
        self.parts.into_iter().map(part).collect()
    }
}

/// Parses arguments for [`ToolUse`]: the object, or `null` and the original text if it is not a JSON object.
/// An empty text means no arguments, because some models write nothing for a tool that needs none.
pub fn parse_tool_args(args_json: String) -> (Value, Option<String>) {
    if args_json.trim().is_empty() {
        return (Value::Object(serde_json::Map::new()), None);
    }
    match serde_json::from_str::<Value>(&args_json) {
        Ok(args @ Value::Object(_)) => (args, None),
        Ok(_) | Err(_) => (Value::Null, Some(args_json)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn non_object_arguments_are_kept_as_text() {
        assert_eq!(parse_tool_args("{\"a\":1}".to_owned()), (json!({"a": 1}), None));
        assert_eq!(parse_tool_args(" \n".to_owned()), (json!({}), None));
        let deep = "[".repeat(100_000);
        for bad in ["{\"a\":", "[1]", "null", "7", "{} {}", &deep] {
            assert_eq!(parse_tool_args(bad.to_owned()), (Value::Null, Some(bad.to_owned())));
        }
    }
}
