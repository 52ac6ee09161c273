//! Bulk operations on tasks: one page at a time, each task in a separate command.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::query::TaskQuery;
use crate::{
    ids::TaskId,
    task::{TaskBlockedReason, TaskState},
};

/// `POST /v1/tasks/bulk`: applies one operation to every selected task, at most
/// [`BULK_TASKS_MAX`](super::BULK_TASKS_MAX) at once. Each task is changed independently: there is no
/// transaction over all of them, and a failure of one does not affect the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// The operation.
    pub act: BulkOperation,
    /// Selects tasks if none are listed; at least one filter is required. Its `before` is the `next` of the
    /// previous response.
    #[serde(default)]
    pub filter: TaskQuery,
    /// The tasks; cannot be combined with a filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// The reason, recorded if the operation's event has one.
    #[serde(default)]
    pub reason: String,
    /// Changes nothing: the response lists the selected tasks.
    #[serde(default)]
    pub dry_run: bool,
}

/// An operation that can be applied to many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BulkOperation {
    /// Cancels the tasks, including running ones.
    Cancel,
    /// Retries the tasks; those with dependencies wait again for the ones that are not completed.
    Retry,
    /// Retries the tasks regardless of their dependencies.
    RetryWithoutDependencies,
    /// Pauses the tasks.
    Pause,
    /// Resumes paused tasks.
    Unpause,
    /// Changes the priority, within ± [`PRIORITY_MAX`](crate::task::PRIORITY_MAX).
    Reprioritize(
        #[serde(deserialize_with = "crate::task::read_priority")]
        #[schemars(range(min = -1000, max = 1000))]
        i16,
    ),
}

/// Result of one page of a bulk operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkResponse {
    /// One entry per task: newest first, or in the order in which they were listed.
    pub tasks: Vec<BulkTaskResult>,
    /// The filter's `before` for the next page. An empty page can have a `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// Result for one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkTaskResult {
    /// The task.
    pub id: TaskId,
    /// The task's title; empty if the task does not exist.
    pub title: String,
    /// The task's current state; none if the task does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedReason>,
    /// Why the operation was not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
