//! How far compaction has come: the summary of old history, and the size of the conversation that the model counted.

/// Where a summary of the oldest messages stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SummaryState {
    /// None is wanted.
    #[default]
    NotNeeded,
    /// A model is to be asked for one.
    Requested,
    /// It answered this; to be put in place.
    Ready(String),
    /// It failed, answered with nothing, or was cut at its limit: the engine makes one.
    Failed,
}

/// What the model counted of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMeasurement {
    /// Tokens of both.
    pub tokens: u64,
    /// How many bytes those were.
    pub(in crate::run) size: MeasuredSize,
}

/// Bytes of prompts, tools and the conversation, the answer with it. Counted when somebody asks: most folds ask
/// for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum MeasuredSize {
    /// They were counted.
    Bytes(u64),
    /// So many messages of the conversation, and the prompts beside them.
    Messages(usize),
}
