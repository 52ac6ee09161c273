//! How a provider is spoken to: all that tells one from another, and which there are.
//!
//! To add one: a module that implements [`Dialect`] and, for its answers, [`AnswerFold`], and its place in [`Provider`]. A worked
//! example stands in `example_tests.rs`. Rendering and folding are pure; only the client moves bytes.

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

/// See the module.
pub(super) trait ProviderProtocol: std::fmt::Debug + Sync {
    /// The provider's own address.
    fn base_url(&self) -> &'static str;

    /// Where requests are posted to, at the provider's own address or another.
    fn endpoint_url(&self, base: &str) -> String;

    /// The environment variable that holds its key.
    fn key_variable(&self) -> &'static str;

    /// The header that carries the key.
    fn key_header(&self, key: &str) -> (&'static str, String);

    /// Headers of every request beside that.
    fn extra_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// What stands around the conversation in a body.
    fn body_frame(&self, request: &ModelRequest) -> BodyFrame;

    /// Appends a turn's messages, with commas between them.
    fn write_turn(&self, turn: &ConversationTurn<'_>, marked: bool, out: &mut Vec<u8>);

    /// How many turns of the user's side bear a cache mark, counted from the end.
    fn cache_marked_turns(&self) -> usize {
        0
    }

    /// An answer of which nothing has come yet.
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;
}

/// An answer as its events come.
pub(super) trait StreamDecoder: std::fmt::Debug + Send {
    /// Takes one event.
    fn push_event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamError>;

    /// Takes an answer that came whole where a stream was asked for. Gives `false` for what is no answer.
    fn push_full_reply(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamError>;

    /// Whether the answer is whole, though more may come.
    fn is_complete(&self) -> bool;

    /// Whether nothing more is to come.
    fn is_finished(&self) -> bool;

    /// The whole answer.
    fn finish(self: Box<Self>) -> Result<DecodedReply, ModelError>;
}

/// The protocols that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelProvider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most servers speak.
    OpenAi,
    /// OpenAI Responses: the only one in which OpenAI's own models keep their reasoning from call to call.
    OpenAiResponses,
    /// A script in place of a model.
    Scripted,
}

impl ModelProvider {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::Scripted];

    /// The protocol a model is spoken to with.
    ///
    /// # Errors
    /// [`RenderError::UnknownProvider`].
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

    /// How it is spoken to. The scripted model reads Anthropic's form: it keeps the sides of a conversation apart.
    pub(super) fn protocol(self) -> &'static dyn ProviderProtocol {
        match self {
            Self::Anthropic | Self::Scripted => &AnthropicProtocol,
            Self::OpenAi => &ChatCompletionsProtocol,
            Self::OpenAiResponses => &OpenAiResponsesProtocol,
        }
    }

    /// The environment variable that holds its key; `None` where none is needed.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiResponses => Some(self.protocol().key_variable()),
            Self::Scripted => None,
        }
    }

    /// Under which name a worker holds its key: protocols of one provider share one.
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
