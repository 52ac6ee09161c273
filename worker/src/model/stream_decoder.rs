//! Shared parts of the protocols' stream decoders: their result, and the two ways a stream can fail after
//! status 200.

use docket_schema::message::{StopReason, TokenUsage};

use super::reply::ReplyPart;

/// A reply without the client's timings.
#[derive(Debug)]
pub(super) struct DecodedReply {
    pub(super) parts: Vec<ReplyPart>,
    pub(super) stop_reason: StopReason,
    pub(super) usage: TokenUsage,
}

/// Why an event could not be decoded.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The provider sent an error within the stream; its data.
    ProviderError(Vec<u8>),
    /// The event is not JSON; its data.
    NotJson(String),
}
