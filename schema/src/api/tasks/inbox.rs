//! Request and response bodies for the inbox: tasks that applications enqueue in their own transactions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Timestamp;

/// Maximum number of rows in one response.
pub const INBOX_ROWS_MAX: u32 = 1000;

/// `GET /v1/inbox`: rows that have not become tasks, oldest first; at most [`INBOX_ROWS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxList {
    /// The rows.
    pub rows: Vec<InboxRow>,
}

/// An inbox row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxRow {
    /// The id of the future task, as the application wrote it.
    pub id: String,
    /// The row's content as the application wrote it, with secrets redacted; truncated if long.
    pub spec: String,
    /// Who enqueued it: on PostgreSQL the role, on SQLite what the application wrote.
    pub submitted_by: String,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Why it was refused; none if it is waiting to be processed, which takes at most a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// When it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
}

/// `POST /v1/inbox/{row}/drop` and `/retry`: the body is an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InboxActRequest {}
