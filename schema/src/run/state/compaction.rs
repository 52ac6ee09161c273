//! State of compaction: the summary of old history, and the measured size of the conversation.

/// State of the summary of the oldest messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SummaryState {
    /// No summary is needed.
    #[default]
    NotNeeded,
    /// A model is to be called for one.
    Requested,
    /// The model's summary, to be inserted.
    Ready(String),
    /// The call failed, or the reply was empty or truncated: the engine creates a summary itself.
    Failed,
}

/// Tokens that the model counted for a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMeasurement {
    /// Tokens of request and answer.
    pub tokens: u64,
    /// The size that was measured.
    pub(in crate::run) size: MeasuredSize,
}

/// Size of prompts, tools and the conversation, including the answer. Bytes are computed on demand, because
/// most folds never need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum MeasuredSize {
    /// The size in bytes.
    Bytes(u64),
    /// The prompts and this many messages of the conversation.
    Messages(usize),
}
