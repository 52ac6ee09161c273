//! What the stream `system/archive` holds: which streams left the log for the archive, and which came back.
//!
//! Written in the transaction that removes them, or brings them back: the stubs that stand in their place can
//! be derived from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunOf;
use crate::{
    event::Head,
    ids::{BlobHash, StreamId, TaskId},
};

/// A family of streams was copied into a file, read back, and removed. Stands in `system/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsArchived {
    /// Its first task.
    pub task: TaskId,
    /// Who archived it: a token's name, or `retention` where a coordinator did by its settings.
    pub by: String,
    /// Where the archive is: `file:///…` or `s3://…`.
    pub place: String,
    /// The file's name there.
    pub file: String,
    /// BLAKE3 of the file.
    pub hash: BlobHash,
    /// Its size.
    pub bytes: u64,
    /// What was removed, in the order of the file.
    pub streams: Vec<StreamArchived>,
}

/// A stream that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamArchived {
    /// Which.
    pub stream: StreamId,
    /// Its last event.
    pub head: Head,
    /// For a run: which task it is a try of, and how manieth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_of: Option<RunOf>,
}

/// A family came back from its file. Stands in `system/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsRestored {
    /// Its first task.
    pub task: TaskId,
    /// Who brought it back.
    pub by: String,
    /// Which streams.
    pub streams: Vec<StreamId>,
}
