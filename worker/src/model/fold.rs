//! What the protocols' folds share: their result, and the two ways a stream can go wrong between
//! status 200 and its end.

use docket_schema::message::{StopReason, Usage};

use super::answer::AnswerPart;

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
