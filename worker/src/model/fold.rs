//! What the protocols' folds share: their result, and the two ways a stream can go wrong between
//! status 200 and its end.

use docket_schema::message::{StopReason, Usage};
use serde_json::Value;

use super::{
    answer::{AnswerPart, OnDelta},
    anthropic,
    error::ModelError,
    openai, responses,
};

/// An answer without the client's times.
#[derive(Debug)]
pub(super) struct Folded {
    pub(super) parts: Vec<AnswerPart>,
    pub(super) stop_reason: StopReason,
    pub(super) usage: Usage,
}

/// Why an event could not be folded.
#[derive(Debug)]
pub(super) enum StreamFault {
    /// The provider told an error within the stream; its words.
    Refused(Vec<u8>),
    /// The event is no JSON; its data.
    NotJson(String),
}

/// The fold of whichever protocol is spoken.
#[derive(Debug)]
pub(super) enum AnyFold {
    Anthropic(anthropic::Fold),
    OpenAi(openai::Fold),
    Responses(responses::Fold),
}

impl AnyFold {
    pub(super) fn event(&mut self, data: &str, on_delta: OnDelta<'_>) -> Result<(), StreamFault> {
        match self {
            Self::Anthropic(fold) => fold.event(data, on_delta),
            Self::OpenAi(fold) => fold.event(data, on_delta),
            Self::Responses(fold) => fold.event(data, on_delta),
        }
    }

    /// Takes an answer that came whole where a stream was asked for. Gives `false` for what is no answer.
    pub(super) fn whole(&mut self, body: &Value, on_delta: OnDelta<'_>) -> Result<bool, StreamFault> {
        match self {
            Self::Anthropic(fold) if body["content"].is_array() => fold.whole(body, on_delta),
            Self::OpenAi(fold) if body["choices"].is_array() => fold.whole(body, on_delta)?,
            Self::Responses(fold) if body["output"].is_array() => fold.whole(body, on_delta)?,
            Self::Anthropic(_) | Self::OpenAi(_) | Self::Responses(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the answer is whole, though more may come.
    pub(super) const fn is_whole(&self) -> bool {
        match self {
            Self::Anthropic(fold) => fold.is_whole(),
            Self::OpenAi(fold) => fold.is_whole(),
            Self::Responses(fold) => fold.ended(),
        }
    }

    pub(super) const fn ended(&self) -> bool {
        match self {
            Self::Anthropic(fold) => fold.ended(),
            Self::OpenAi(fold) => fold.ended(),
            Self::Responses(fold) => fold.ended(),
        }
    }

    pub(super) fn finish(self) -> Result<Folded, ModelError> {
        match self {
            Self::Anthropic(fold) => fold.finish(),
            Self::OpenAi(fold) => fold.finish(),
            Self::Responses(fold) => fold.finish(),
        }
    }
}
