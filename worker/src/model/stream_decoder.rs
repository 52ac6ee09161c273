//! What the protocols' folds share: their result, and the two ways a stream can go wrong between
//! status 200 and its end.

use docket_schema::message::{StopReason, TokenUsage};

use super::reply::ReplyPart;

/// An answer without the client's times.
#[derive(Debug)]
pub(super) struct DecodedReply {
    pub(super) parts: Vec<ReplyPart>,
    pub(super) stop_reason: StopReason,
    pub(super) usage: TokenUsage,
}

/// Why an event could not be folded.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The provider told an error within the stream; its words.
    ProviderError(Vec<u8>),
    /// The event is no JSON; its data.
    NotJson(String),
}
