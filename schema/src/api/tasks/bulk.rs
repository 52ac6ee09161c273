//! Acts on many tasks: a page at a time, each task a command of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::query::TaskQuery;
use crate::{
    ids::TaskId,
    task::{TaskBlockedReason, TaskState},
};

/// `POST /v1/tasks/bulk`: does one thing to every task that is meant, at most
/// [`BULK_TASKS_MAX`](super::BULK_TASKS_MAX) at once. Each task's part is done by itself: there is no
/// transaction over all of them, and what one refuses holds none of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// What is done.
    pub act: BulkOperation,
    /// Which tasks, where none are named: at least one filter. Its `before` is the last answer's `next`.
    #[serde(default)]
    pub filter: TaskQuery,
    /// These tasks; there is no filter beside them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// Why, for the log, where the act's event holds a reason.
    #[serde(default)]
    pub reason: String,
    /// Nothing is done: the answer says which tasks are meant.
    #[serde(default)]
    pub dry_run: bool,
}

/// What can be done to many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BulkOperation {
    /// They end, also while they run.
    Cancel,
    /// They begin anew; those that were to come after others wait again for what is not completed.
    Retry,
    /// They begin anew, whatever they were to come after.
    RetryWithoutDependencies,
    /// They rest.
    Pause,
    /// Paused ones go on.
    Unpause,
    /// They get another priority, within ± [`PRIORITY_MAX`](crate::task::PRIORITY_MAX).
    Reprioritize(
        #[serde(deserialize_with = "crate::task::read_priority")]
        #[schemars(range(min = -1000, max = 1000))]
        i16,
    ),
}

/// A page of what was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkResponse {
    /// One per task, newest first, or in the order in which they were named.
    pub tasks: Vec<BulkTaskResult>,
    /// Give this as the filter's `before` for the next page. A page may be empty and have a next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// What became of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BulkTaskResult {
    /// The task.
    pub id: TaskId,
    /// Its title; empty where there is no such task.
    pub title: String,
    /// Its state now; none where there is no such task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// For what it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedReason>,
    /// Why nothing was done to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
