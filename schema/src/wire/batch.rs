//! Batches: tasks that were submitted together, and how they stand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StateCount;
use crate::ids::{BatchId, TaskId, Timestamp};

/// `GET /v1/batches/{id}`: how a batch stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchView {
    /// The batch.
    pub id: BatchId,
    /// What its submitter calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its tasks.
    pub tasks: u64,
    /// By state.
    pub states: Vec<StateCount>,
    /// Runs begun.
    pub runs: u64,
    /// Runs that failed, of tasks as they stand now: a retry begins to count again.
    pub failures: u64,
    /// Run-process crashes, likewise.
    pub crashes: u64,
    /// What tasks that are not done say, the most frequent first; at most
    /// [`BATCH_MESSAGES_MAX`](super::BATCH_MESSAGES_MAX).
    pub messages: Vec<MessageCount>,
    /// The task whose present run began first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_running: Option<OldestRunning>,
    /// When its first task was submitted.
    pub first_submitted_at: Timestamp,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
    /// When the first of those that have ended did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ended_at: Option<Timestamp>,
    /// When the last of them did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ended_at: Option<Timestamp>,
}

/// How often tasks say something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageCount {
    /// What they say.
    pub message: String,
    /// How many.
    pub count: u64,
    /// One of them.
    pub task: TaskId,
}

/// A task that has been running for the longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OldestRunning {
    /// The task.
    pub task: TaskId,
    /// When its run began.
    pub since: Timestamp,
}

/// `GET /v1/batches`: the batches of the newest tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchList {
    /// At most [`BATCHES_MAX`](super::BATCHES_MAX), the one with the newest task first.
    pub batches: Vec<BatchSummary>,
    /// There are more.
    pub more: bool,
}

/// A batch in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchSummary {
    /// The batch.
    pub id: BatchId,
    /// What its submitter calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its tasks.
    pub tasks: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// When its last task was submitted.
    pub last_submitted_at: Timestamp,
}
