//! Request and response bodies for memory that outlives a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Timestamp, message::CallId, system::MemoryScope};

/// A memory scope as a run refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScopeKind {
    /// The repository of the run's base.
    Repository,
    /// The queue of the run's task.
    Queue,
}

/// `POST /v1/runs/{id}/memory`: a run saves, recalls or deletes a memory. It can only access its own
/// repository and its own queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunMemoryRequest {
    /// The tool call that makes the request. Sending it again does not apply the change twice.
    pub call: CallId,
    /// The scope to use.
    pub scope: MemoryScopeKind,
    /// The operation.
    pub act: MemoryOperation,
}

/// An operation on memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryOperation {
    /// Saves a value under a key.
    Save {
        /// The key: one line of at most 128 characters.
        key: String,
        /// The value, at most 16 KiB.
        value: String,
    },
    /// Returns the value of a key, or all keys if no key is given.
    Recall {
        /// The key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// Result of a memory operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunMemoryResponse {
    /// The value was saved.
    Saved {
        /// Number of keys in the scope.
        keys: u32,
    },
    /// The value of the requested key.
    Recalled {
        /// The complete value.
        value: String,
    },
    /// The keys of the scope, by name.
    Keys {
        /// All keys of the scope.
        keys: Vec<MemoryKey>,
    },
    /// The key was deleted.
    Deleted,
    /// The key does not exist.
    Absent,
}

/// A key of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryKey {
    /// The key.
    pub key: String,
    /// Size of the value in bytes.
    pub bytes: u64,
    /// The beginning of the value, on one line.
    pub begins: String,
}

/// `GET /v1/memory?repository=` or `?queue=`, and `&key=` for one complete value. Without a scope, all
/// memories are listed without their values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryQuery {
    /// Memories of runs in this repository: a local folder or a remote's address, as given in tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Memories of runs in this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only this key, with its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A list of memories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryList {
    /// The memories, by scope and key.
    pub memories: Vec<MemoryView>,
}

/// A value saved under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryView {
    /// The memory's scope.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
    /// Size of the value in bytes.
    pub bytes: u64,
    /// The beginning of the value, on one line.
    pub begins: String,
    /// The value; only present if one key was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The run that saved it.
    pub run: crate::ids::RunId,
    /// When it was saved.
    pub saved_at: Timestamp,
}

/// `POST /v1/memory/delete`: deletes a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteMemoryRequest {
    /// The key's scope.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
}
