//! Events of the stream `system/archive`: which streams were archived and which were restored.
//!
//! Written in the same transaction that removes or restores them; the stubs of archived streams are derived
//! from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{BatchId, BlobHash, QueueName, StreamId, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
};

/// A group of streams was copied into a file, verified, and removed. Recorded in `system/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsArchived {
    /// The group's first task.
    pub task: TaskId,
    /// Who archived it: a token's name, or `retention` for a coordinator's automatic retention.
    pub by: String,
    /// Location of the archive: `file:///…` or `s3://…`.
    pub place: String,
    /// The file's name in the archive.
    pub file: String,
    /// BLAKE3 hash of the file.
    pub hash: BlobHash,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The removed streams, in the order of the file.
    pub streams: Vec<StreamArchived>,
}

/// An archived stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamArchived {
    /// The stream.
    pub stream: StreamId,
    /// The stream's last event.
    pub head: Head,
    /// For a run: its task, and its number within the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_of: Option<TaskRunRef>,
    /// For a task: the data in its stub. None if an older docket version archived it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<ArchivedTask>>,
}

/// A run's task and its number within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunRef {
    /// The task.
    pub task: TaskId,
    /// Number of the run within the task, starting at 1.
    pub attempt: u32,
}

/// The data about an archived task in its stub. It is used to find the task, to count it in its batch, to
/// recognize its deduplication key on import, and to resolve dependencies on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTask {
    /// Its title.
    pub title: String,
    /// Its queue.
    pub queue: QueueName,
    /// The state it ended in.
    pub state: TaskState,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The batch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
    /// Its deduplication key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    /// Number of runs started.
    pub runs: u32,
    /// Number of runs that failed.
    pub failures: u32,
    /// Crashes of run processes since the last run that ended.
    pub crashes: u32,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl ArchivedTask {
    /// Returns the stub data of a task; none if it has not ended.
    pub fn from_record(record: &TaskRecord) -> Option<Self> {
        let spec = &record.spec;
        Some(Self {
            title: spec.title.clone(),
            queue: spec.queue.clone(),
            state: record.state,
            batch: spec.batch,
            batch_name: spec.batch_name.clone(),
            dedup_key: spec.dedup_key.clone(),
            runs: record.runs,
            failures: record.failures,
            crashes: record.crashes,
            submitted_at: record.submitted_at,
            ended_at: record.ended_at?,
        })
    }
}

/// A group was restored from its file. Recorded in `system/archive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamsRestored {
    /// The group's first task.
    pub task: TaskId,
    /// Who restored it.
    pub by: String,
    /// The restored streams.
    pub streams: Vec<StreamId>,
}
