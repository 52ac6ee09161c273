//! Provider protocols: the interface that covers all differences between providers, and the list of
//! providers.
//!
//! To add one: write a module that implements [`ProviderProtocol`] and, for its replies, [`StreamDecoder`],
//! and add it to [`ModelProvider`]. `example_tests.rs` contains a worked example. Rendering and decoding are
//! pure; only the client performs I/O.

use docket_schema::message::ModelRef;
use serde_json::Value;

use super::{
    anthropic::AnthropicProtocol,
    error::ModelError,
    openai::ChatCompletionsProtocol,
    reply::OnDelta,
    request::{BodyFrame, ConversationTurn, ModelRequest, RenderError},
    responses::OpenAiResponsesProtocol,
    stream_decoder::{DecodedReply, StreamError},
};

/// A provider's protocol; see the module documentation.
pub(super) trait ProviderProtocol: std::fmt::Debug + Sync {
    /// The provider's own address.
    fn base_url(&self) -> &'static str;

    /// The URL for requests, at the provider's own address or another one.
    fn endpoint_url(&self, base: &str) -> String;

    /// The environment variable that contains its key.
    fn key_variable(&self) -> &'static str;

    /// The header that carries the key.
    fn key_header(&self, key: &str) -> (&'static str, String);

    /// Additional headers of every request.
    fn extra_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The parts of a body around the conversation.
    fn body_frame(&self, request: &ModelRequest) -> BodyFrame;

    /// Appends a turn's messages, separated by commas.
    fn write_turn(&self, turn: &ConversationTurn<'_>, marked: bool, out: &mut Vec<u8>);

    /// Number of user turns with a cache mark, counted from the end.
    fn cache_marked_turns(&self) -> usize {
        0
    }

    /// Creates a decoder for a new reply.
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;
}

/// An incremental decoder of a reply.
pub(super) trait StreamDecoder: std::fmt::Debug + Send {
    /// Processes one event.
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError>;

    /// Decodes a reply that arrived as a whole although a stream was requested. Returns `false` if `body` is
    /// not a reply.
    fn push_full_reply(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamError>;

    /// Whether the reply is complete, although more events may follow.
    fn is_complete(&self) -> bool;

    /// Whether no more events will follow.
    fn is_finished(&self) -> bool;

    /// Returns the complete reply.
    fn finish(self: Box<Self>) -> Result<DecodedReply, ModelError>;
}

/// The supported protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelProvider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most servers support.
    OpenAi,
    /// OpenAI Responses: the only protocol in which OpenAI's own models keep their reasoning between calls.
    OpenAiResponses,
    /// A script in place of a model.
    Scripted,
}

impl ModelProvider {
    /// All providers.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::Scripted];

    /// Returns the protocol of a model.
    ///
    /// # Errors
    /// [`RenderError::UnknownProvider`] if the model's provider is not supported.
    pub fn for_model(model: &ModelRef) -> Result<Self, RenderError> {
        let found = Self::ALL.into_iter().find(|provider| provider.name() == model.provider);
        found.ok_or_else(|| RenderError::UnknownProvider(model.provider.clone()))
    }

    /// Its name in a [`ModelRef`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Scripted => "scripted",
        }
    }

    /// The protocol's implementation. The scripted model reads Anthropic's form, because it separates the
    /// sides of a conversation.
    pub(super) fn protocol(self) -> &'static dyn ProviderProtocol {
        match self {
            Self::Anthropic | Self::Scripted => &AnthropicProtocol,
            Self::OpenAi => &ChatCompletionsProtocol,
            Self::OpenAiResponses => &OpenAiResponsesProtocol,
        }
    }

    /// The environment variable that contains its key; `None` if no key is needed.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiResponses => Some(self.protocol().key_variable()),
            Self::Scripted => None,
        }
    }

    /// The name under which a worker stores its key: protocols of one provider share one.
    pub const fn key_name(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "openai",
            Self::Anthropic | Self::Scripted => self.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_of_a_model_ref_has_a_protocol() {
        assert_eq!(ModelProvider::ALL.map(ModelProvider::name), ModelRef::PROVIDERS);
    }
}
