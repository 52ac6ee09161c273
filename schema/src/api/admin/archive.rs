//! Bodies about the archive: what is moved there, what stands there, its files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{BatchId, BlobHash, QueueName, RunId, StreamId, TaskId, Timestamp},
    system::ArchivedTask,
};

/// Most tasks that one request looks at.
pub const ARCHIVE_TASKS_MAX: u32 = 100;

/// Most bytes of a file in one answer.
pub const ARCHIVE_CHUNK_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// `POST /v1/archive`: moves tasks that ended long ago to the archive, with everything that shares history
/// with them. Looks at [`ARCHIVE_TASKS_MAX`] tasks at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveRequest {
    /// How long ago they must have ended.
    pub older_than_ms: u64,
    /// Only those of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Go on behind this place: the answer's `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ArchiveCursor>,
}

/// A place among tasks in order of their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveCursor {
    /// When the task ended.
    pub ended_at: Timestamp,
    /// Which.
    pub task: TaskId,
}

/// What was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchiveResponse {
    /// What was moved, or would be.
    pub archived: Vec<ArchivedGroup>,
    /// What stays, and why.
    pub kept: Vec<RetainedGroup>,
    /// Where to go on; none = that was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ArchiveCursor>,
}

/// A family that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedGroup {
    /// Its first task.
    pub task: TaskId,
    /// How many tasks.
    pub tasks: u64,
    /// How many runs.
    pub runs: u64,
    /// How many events.
    pub events: u64,
    /// The file's name; none where it was only looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its size.
    #[serde(default)]
    pub bytes: u64,
}

/// A task that is old enough and stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetainedGroup {
    /// Which.
    pub task: TaskId,
    /// Why.
    pub why: String,
}

/// `GET /v1/archived/{id}`: what stands in the place of a task or run that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedStreamView {
    /// Its stream.
    pub stream: StreamId,
    /// The stream's last event.
    pub head: Head,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Where the archive is.
    pub place: String,
    /// The file's name there.
    pub file: String,
    /// BLAKE3 of the file.
    pub file_hash: BlobHash,
    /// Its size.
    pub file_bytes: u64,
}

/// `GET /v1/archived`: stubs in order of their streams' names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchivedStreamQuery {
    /// Those behind this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<StreamId>,
}

/// A page of stubs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedStreamPage {
    /// The stubs.
    pub archived: Vec<ArchivedStreamView>,
    /// There may be more.
    pub more: bool,
}

/// `GET /v1/archive/tasks`: tasks that are archived, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchivedTaskQuery {
    /// Of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Of this batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Pattern of the title: `*` is any text, `?` any character, letter case does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Those submitted before this one: the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TaskId>,
    /// At most this many; 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A page of archived tasks. Where a pattern admits few of many it may be short, or empty, and have a next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTaskPage {
    /// The tasks.
    pub tasks: Vec<ArchivedTaskView>,
    /// Where to go on; none = that was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// A task that is archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTaskView {
    /// Which.
    pub id: TaskId,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// What is known of it without its file; none where an older docket archived it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<ArchivedTask>>,
}

/// `GET /v1/archived/{id}/file`: a part of the file that holds a task or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveFileQuery {
    /// From which byte on; at most [`ARCHIVE_PART_BYTES_MAX`] are answered.
    pub offset: u64,
}

/// `POST /v1/archived/{id}/restore` answers: what came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreResponse {
    /// The family's first task.
    pub task: TaskId,
    /// Its tasks.
    pub tasks: Vec<TaskId>,
    /// Its runs.
    pub runs: Vec<RunId>,
    /// How many events.
    pub events: u64,
}
