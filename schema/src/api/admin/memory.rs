//! Bodies about what is remembered beyond runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Timestamp, message::CallId, system::MemoryScope};

/// Which of its scopes a run means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScopeKind {
    /// The repository that its base came from.
    Repository,
    /// The queue of its task.
    Queue,
}

/// `POST /v1/runs/{id}/memory`: a run saves, recalls or forgets. Of its own repository and its own queue alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunMemoryRequest {
    /// The call that asks: sent again, it changes nothing twice.
    pub call: CallId,
    /// Which scope.
    pub scope: MemoryScopeKind,
    /// What is asked.
    pub act: MemoryOperation,
}

/// What is asked of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryOperation {
    /// Remember a value under a key.
    Save {
        /// The key: one line of at most 128 characters.
        key: String,
        /// The value, at most 16 KiB.
        value: String,
    },
    /// Give the value of a key; without one the keys.
    Recall {
        /// The key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Forget a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunMemoryResponse {
    /// It is remembered.
    Saved {
        /// Keys of the scope.
        keys: u32,
    },
    /// The value of the key.
    Recalled {
        /// Whole.
        value: String,
    },
    /// The keys, by name.
    Keys {
        /// All of the scope.
        keys: Vec<MemoryKey>,
    },
    /// It is forgotten.
    Deleted,
    /// Nothing is remembered under the key.
    Absent,
}

/// A key of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryKey {
    /// The key.
    pub key: String,
    /// Size of the value.
    pub bytes: u64,
    /// The begin of the value, on one line.
    pub begins: String,
}

/// `GET /v1/memory?repository=` or `?queue=`, and `&key=` for one whole. Without either: all, without values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryQuery {
    /// Of runs on this repository: a local folder or a remote's address, as tasks have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Of runs of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only this key, and its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryList {
    /// By scope and key.
    pub memories: Vec<MemoryView>,
}

/// What is remembered under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryView {
    /// Whose.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
    /// Size of the value.
    pub bytes: u64,
    /// The begin of the value, on one line.
    pub begins: String,
    /// The value, where one key was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Which run saved it.
    pub run: crate::ids::RunId,
    /// When.
    pub saved_at: Timestamp,
}

/// `POST /v1/memory/delete`: somebody forgets a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteMemoryRequest {
    /// Whose.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
}
