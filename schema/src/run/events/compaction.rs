//! Compaction: replacing old history when a context window fills up.
//!
//! The event lists exactly what the fold does, call by call, so later releases need not know the rules by
//! which an engine chose. The replaced history remains in the log in its original events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::Content, ids::DecisionHash, message::CallId};

/// Old history was replaced by shorter text. Applied in this order: steps are dropped, results are cleared,
/// messages are replaced by the summary, the ledger is inserted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compacted {
    /// Number of messages replaced by the summary, counted from the first, or from the second if
    /// `keeps_task`.
    pub messages: u32,
    /// The summary, which replaces these messages, an earlier summary, and the messages of dropped steps;
    /// empty if none of these change.
    pub summary: Content,
    /// The first message, which contains the task, is kept; summary and ledger follow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_task: bool,
    /// Results that were reduced to one line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleared: Vec<ClearedResult>,
    /// Calls dropped completely with their results: either all calls of an answer or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<CallId>,
    /// The runtime's ledger of the run, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Content>,
    /// This does not free enough space: the oldest messages are summarized next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summary_follows: bool,
    /// The decision; none if the event was written by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionHash>,
}

/// A result reduced to one line; its `ToolFinished` contains the full result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearedResult {
    /// The call.
    pub call: CallId,
    /// The remaining line.
    pub line: String,
}
