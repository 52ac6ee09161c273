//! What becomes of old history where a context window fills.
//!
//! The event says what the fold does, call by call: no later release has to know by which rules an engine
//! chose. What it replaced stays in the log, in the events that brought it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::Content, ids::DecisionHash, message::CallId};

/// Old history was replaced by shorter text. In this order: steps are dropped, results are cleared, messages
/// are replaced by the summary, the ledger is put back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compacted {
    /// Messages replaced by the summary, counted from the first, or from the one after it where `keeps_task`.
    pub messages: u32,
    /// What stands in their place, in that of an earlier summary, and for the words of what is dropped; empty where
    /// all of that stays as it is.
    pub summary: Content,
    /// The first message, which holds the task, stays as it was said; summary and ledger stand behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_task: bool,
    /// Results of which a line is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleared: Vec<ClearedResult>,
    /// Calls whose answers are dropped whole, with the results: all calls of an answer, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<CallId>,
    /// What the runtime keeps of the run, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Content>,
    /// It is not enough: the oldest messages are summarized next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summary_follows: bool,
    /// The decision; none in what was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionHash>,
}

/// A result of which a line is left; its `ToolFinished` holds the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearedResult {
    /// The call.
    pub call: CallId,
    /// The line.
    pub line: String,
}
