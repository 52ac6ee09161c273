//! What the stream `system/archive` holds: which streams left the log for the archive, and which came back.
//!
//! Written in the transaction that removes them, or brings them back: the stubs that stand in their place can
//! be derived from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{BatchId, BlobHash, QueueName, StreamId, TaskId, Timestamp},
    task::{TaskRecord, TaskState},
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
    pub run_of: Option<TaskRunRef>,
    /// For a task: what its stub keeps. None where it was archived by an older docket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<ArchivedTask>>,
}

/// A run's place in its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunRef {
    /// The task.
    pub task: TaskId,
    /// How manieth run of it, from 1.
    pub attempt: u32,
}

/// What a stub keeps of a task: it is found by it, its batch counts it, an import knows it by its key, and a task that
/// is to wait for it knows how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTask {
    /// Its title.
    pub title: String,
    /// Its queue.
    pub queue: QueueName,
    /// How it ended.
    pub state: TaskState,
    /// Its batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// What the batch is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
    /// Its deduplication key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    /// Runs begun.
    pub runs: u32,
    /// Runs that failed.
    pub failures: u32,
    /// Run-process crashes since the last run that ended.
    pub crashes: u32,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl ArchivedTask {
    /// What is kept of a task; none where it has not ended.
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
