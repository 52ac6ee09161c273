//! Request and response bodies of the archive API: move tasks to the archive, list archived streams, download
//! and restore their files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Head,
    ids::{BatchId, BlobHash, QueueName, RunId, StreamId, TaskId, Timestamp},
    system::ArchivedTask,
};

/// Maximum number of tasks one request examines.
pub const ARCHIVE_TASKS_MAX: u32 = 100;

/// Maximum number of bytes of an archive file in one response.
pub const ARCHIVE_CHUNK_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// `POST /v1/archive`: moves tasks that ended long ago to the archive, together with everything that shares
/// history with them. Examines at most [`ARCHIVE_TASKS_MAX`] tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveRequest {
    /// Minimum time since the tasks ended, in milliseconds.
    pub older_than_ms: u64,
    /// Limits the request to this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Reports what would be archived without changing anything.
    #[serde(default)]
    pub dry_run: bool,
    /// Continues after this position: the `next` of the previous response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ArchiveCursor>,
}

/// A position in the list of tasks ordered by end time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveCursor {
    /// When the task ended.
    pub ended_at: Timestamp,
    /// The task's id.
    pub task: TaskId,
}

/// Result of an archive request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchiveResponse {
    /// Groups that were archived, or would be with `dry_run`.
    pub archived: Vec<ArchivedGroup>,
    /// Groups that were not archived, with the reason.
    pub kept: Vec<RetainedGroup>,
    /// Where to continue; none if there are no more tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ArchiveCursor>,
}

/// A group of runs and tasks with shared history that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedGroup {
    /// The group's first task.
    pub task: TaskId,
    /// Number of tasks.
    pub tasks: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of events.
    pub events: u64,
    /// The archive file's name; none for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The file's size in bytes.
    #[serde(default)]
    pub bytes: u64,
}

/// A task that is old enough but is not archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetainedGroup {
    /// The task's id.
    pub task: TaskId,
    /// Why it is not archived.
    pub why: String,
}

/// `GET /v1/archived/{id}`: the stub that replaces an archived task or run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedStreamView {
    /// The archived stream.
    pub stream: StreamId,
    /// The stream's last event.
    pub head: Head,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Location of the archive.
    pub place: String,
    /// The file's name in the archive.
    pub file: String,
    /// BLAKE3 hash of the file.
    pub file_hash: BlobHash,
    /// The file's size in bytes.
    pub file_bytes: u64,
}

/// `GET /v1/archived`: stubs, ordered by stream name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchivedStreamQuery {
    /// Returns stubs after this stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<StreamId>,
}

/// A page of stubs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedStreamPage {
    /// The stubs.
    pub archived: Vec<ArchivedStreamView>,
    /// Whether there may be more.
    pub more: bool,
}

/// `GET /v1/archive/tasks`: archived tasks, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchivedTaskQuery {
    /// Only tasks of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Only tasks of this batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Title pattern: `*` matches any text, `?` any character; case-insensitive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Only tasks submitted before this one; used to fetch the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TaskId>,
    /// Maximum number of tasks; at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A page of archived tasks. With a selective title pattern, a page can be short or empty and still have a
/// `next`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTaskPage {
    /// The tasks.
    pub tasks: Vec<ArchivedTaskView>,
    /// Where to continue; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// An archived task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArchivedTaskView {
    /// The task's id.
    pub id: TaskId,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// The task's data that can be shown without reading its file; none if an older docket version archived it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<ArchivedTask>>,
}

/// `GET /v1/archived/{id}/file`: a part of the archive file that contains a task or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveFileQuery {
    /// Offset of the first byte to return; one response has at most [`ARCHIVE_CHUNK_BYTES_MAX`] bytes.
    pub offset: u64,
}

/// Response of `POST /v1/archived/{id}/restore`: what was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreResponse {
    /// The group's first task.
    pub task: TaskId,
    /// The restored tasks.
    pub tasks: Vec<TaskId>,
    /// The restored runs.
    pub runs: Vec<RunId>,
    /// Number of restored events.
    pub events: u64,
}
