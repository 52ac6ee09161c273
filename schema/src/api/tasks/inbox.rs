//! Bodies about the inbox: what applications enqueued within transactions of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Timestamp;

/// Rows of one answer, at most.
pub const INBOX_ROWS_MAX: u32 = 1000;

/// `GET /v1/inbox`: rows that no coordinator has made tasks of, oldest first; at most [`INBOX_ROWS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxList {
    /// The rows.
    pub rows: Vec<InboxRow>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxRow {
    /// The id that its task is to have, as the application wrote it.
    pub id: String,
    /// What it holds, as the application wrote it but for secrets; cut where it is long.
    pub spec: String,
    /// Who put it there: on PostgreSQL the role, on SQLite what the application says.
    pub submitted_by: String,
    /// When.
    pub created_at: Timestamp,
    /// Why it is no task; none = it waits for its turn, a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Since when that stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Timestamp>,
}

/// `POST /v1/inbox/{row}/drop` and `/retry`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InboxActRequest {}
